"""``remit bootstrap``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from remit.cli.shared import FILE, FOLDER, emit, note, reads, settings_of, whoami, write_file
from remit.kernel.errors import InvalidInputError

__all__ = ["bootstrap"]


@click.group()
def bootstrap() -> None:
    """Everything that a new root needs, as one file."""


@bootstrap.command()
@click.option("--out", required=True, type=FILE, help="The file.")
@reads
def build(root: Path | None, as_json: bool, out: Path) -> None:
    """Write CP_BOOTSTRAP.tar.gz: this Remit and its packages, the same bytes on any machine."""
    from remit.packages.bootstrap import build_bundle
    from remit.packages.distribution import repack_wheel
    from remit.packages.shipped import shipped_archives

    made = build_bundle(repack_wheel(), shipped_archives(), settings_of(root).packages)
    with write_file(out) as file:
        file.write(made.data)
    packages = [package.manifest for package in made.packages]
    summary = {
        "out": str(out),
        "sha256": made.sha256,
        "bytes": len(made.data),
        "remit_version": made.version,
        "wheel": made.wheel,
        "packages": [
            {"package_id": package.package_id, "version": package.version} for package in packages
        ],
    }
    emit(as_json, summary, [made.sha256])
    if not as_json:
        note(f"{out}: Remit {made.version}, {len(packages)} packages, {len(made.data):,} bytes.")


@bootstrap.command()
@click.option(
    "--packages", "directory", required=True, metavar="DIR",
    type=FOLDER, help="packages/ of the unpacked bootstrap.",
)  # fmt: skip
@click.option("--dev", is_flag=True, help="Let unsigned packages pass; the record says so.")
@reads
def install(root: Path | None, as_json: bool, directory: Path, dev: bool) -> None:
    """Install all packages of a bootstrap and run every gate; exit 1 when one fails."""
    from remit.kernel.root import Root
    from remit.packages.bootstrap import read_bundle
    from remit.runtime.installation import install_bootstrap

    if root is None and os.environ.get("REMIT_ROOT"):
        root = Path(os.environ["REMIT_ROOT"])
    if root is None:  # not the nearest one: a bootstrap is for a place that somebody named
        raise InvalidInputError(
            "No root is named to install into.", next_step="Name it with --root DIR, or REMIT_ROOT."
        )
    archives = read_bundle(directory, settings_of(root).packages)
    report = install_bootstrap(Root(root), archives, dev=dev, by=whoami())
    emit(as_json, report.to_dict(), report.lines())
    raise SystemExit(0 if report.passed else 1)
