"""``remit bootstrap``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.approve import whoami
from remit.cli.shared import echo_json, note, reads, say
from remit.kernel.errors import InvalidInputError, RemitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remit.packages import ArchiveLimits
    from remit.packages.bootstrap.report import InstallReport

__all__ = ["bootstrap"]


@click.group()
def bootstrap() -> None:
    """Everything that a new root needs, as one file."""


@bootstrap.command()
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The file."
)
@reads
def build(root: Path | None, as_json: bool, out: Path) -> None:
    """Write CP_BOOTSTRAP.tar.gz: this Remit and its packages, the same bytes on any machine."""
    from remit.packages.bootstrap import bundled
    from remit.packages.distribution import repack_wheel
    from remit.packages.shipped import shipped_archives

    made = bundled(repack_wheel(), shipped_archives(), _limits(root))
    _write(out, made.data)
    if as_json:
        packages = [(one.manifest.package_id, one.manifest.version) for one in made.packages]
        echo_json(
            {
                "out": str(out),
                "sha256": made.sha256,
                "bytes": len(made.data),
                "remit_version": made.version,
                "wheel": made.wheel,
                "packages": [{"package_id": one, "version": two} for one, two in packages],
            }
        )
    else:
        click.echo(made.sha256)
        note(
            f"{out}: Remit {made.version}, {len(made.packages)} packages, {len(made.data):,} bytes."
        )


@bootstrap.command()
@click.option(
    "--packages", "directory", required=True, metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False), help="packages/ of the unpacked bootstrap.",
)  # fmt: skip
@click.option("--dev", is_flag=True, help="Let unsigned packages pass; the record says so.")
@reads
def install(root: Path | None, as_json: bool, directory: Path, dev: bool) -> None:
    """Install all packages of a bootstrap and run every gate; exit 1 when one fails."""
    from remit.packages.bootstrap import install_bundle

    if root is None and os.environ.get("REMIT_ROOT"):
        root = Path(os.environ["REMIT_ROOT"])
    if root is None:  # not the nearest one: a bootstrap is for a place that somebody named
        raise InvalidInputError(
            "No root is named to install into.", next_step="Name it with --root DIR, or REMIT_ROOT."
        )
    report = install_bundle(root, directory, dev=dev, install=_install, limits=_limits(root))
    if as_json:
        echo_json(report.to_dict())
    else:
        for line in report.lines():
            say(line)
    raise SystemExit(0 if report.passed else 1)


def _install(root: Path, archives: Sequence[Path], dev: bool) -> InstallReport:
    """Make the root, install the archives, run all gates."""
    from remit.kernel.root import Root
    from remit.runtime.governing import install_bootstrap

    return install_bootstrap(Root(root), archives, dev=dev, by=whoami())


def _limits(root: Path | None) -> ArchiveLimits:
    from remit.kernel.root import find_root
    from remit.kernel.settings import load_settings
    from remit.packages import ArchiveLimits

    return ArchiveLimits.from_settings(load_settings(find_root(root).config).settings.packages)


def _write(out: Path, data: bytes) -> None:
    """All of it or nothing; what is no file, such as a pipe, is written to."""
    new = out.with_name(f".{out.name}.new")
    try:
        if out.exists() and not out.is_file():
            out.write_bytes(data)
        else:
            new.write_bytes(data)
            new.replace(out)
    except OSError as error:
        raise RemitError(
            f"{out} cannot be written: {error.strerror or error}.",
            next_step="Name a file in a directory that you may write to.",
        ) from error
    finally:
        new.unlink(missing_ok=True)
