"""``remit package new``, ``pack``, ``show`` and ``diff``: commands for authors of packages."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import (
    FILE,
    FOLDER,
    common,
    emit,
    note,
    open_root,
    package_settings,
    reads,
    say,
)

if TYPE_CHECKING:
    from remit.kernel.settings import PackageSettings
    from remit.packages import Archive, Manifest

__all__ = ["diff_", "new", "pack_", "show", "view_of"]


@click.command()
@click.argument("directory", type=FOLDER)
@click.option("--id", "package_id", required=True, metavar="PKG-…", help="The package's id.")
@click.option("--title", default="", help="One-line description.")
@common
def new(root: Path | None, directory: Path, package_id: str, title: str) -> None:
    """Create a package with a working example agent."""
    from remit.packages import new_package

    made = new_package(directory, package_id, title=title)
    say(f"{made.package_id} {made.version} in {directory}")
    for asset in made.assets:
        say(f"  {asset.path} ({asset.classification})")
    note(f"Edit the files, then run `remit package pack {directory} --update`.")


@click.command("pack")
@click.argument("directory", type=FOLDER)
@click.option(
    "--out", type=FILE, help="Output file (default: PKG-…-VERSION.tar.gz in the current directory)."
)
@click.option("--update", is_flag=True, help="Update the file hashes in manifest.json first.")
@reads
def pack_(
    root: Path | None, as_json: bool, directory: Path, out: Path | None, update: bool
) -> None:
    """Build a package archive. The build is reproducible."""
    import io

    from remit.kernel.canonical import sha256_hex
    from remit.packages import PackageError, pack, read_archive, replace_file, update_hashes

    if update:
        update_hashes(directory)
    data = pack(directory)
    # An archive that others would refuse is refused here, where it can be changed.
    manifest = read_archive(io.BytesIO(data), package_settings(root)).manifest
    target = out or Path(f"{manifest.package_id}-{manifest.version}.tar.gz")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, data)
    except OSError as error:
        raise PackageError(
            "unreadable",
            f"{target} cannot be written: {error.strerror or error}.",
            next_step="Choose another file with --out.",
        ) from error
    found = {
        "package_id": manifest.package_id,
        "version": manifest.version,
        "archive": str(target),
        "digest": f"sha256:{sha256_hex(data)}",
        "bytes": len(data),
    }
    emit(as_json, found, [f"{target} ({len(data):,} bytes)", str(found["digest"])])


@click.command()
@click.argument("package", metavar="ARCHIVE|DIRECTORY")
@reads
def show(root: Path | None, as_json: bool, package: str) -> None:
    """Show a package: description, dependencies, permissions and files."""
    manifest = view_of(package, package_settings(root), root).manifest
    emit(as_json, _plain(manifest), _lines(manifest))


@click.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new_", metavar="NEW")
@reads
def diff_(root: Path | None, as_json: bool, old: str, new_: str) -> None:
    """Compare two versions of a package; each is an archive or a directory."""
    from remit.packages import compare_packages

    settings = package_settings(root)
    found = compare_packages(view_of(old, settings, root), view_of(new_, settings, root))
    emit(as_json, asdict(found), found.lines())
    if found.widened and not as_json:
        note("The new version requests more permissions: installing it requires --approve.")


def view_of(argument: str, settings: PackageSettings, root: Path | None) -> Archive:
    """Return the package in an archive or a directory, or an installed package by its id.

    Raises:
        PackageError: no such package exists, or the content is not a valid package.
    """
    from remit.packages import Archive, PackageError, read_archive

    path = Path(argument)
    if path.is_dir():
        return Archive.from_directory(path)
    if argument.startswith("PKG-") and not argument.endswith(".tar.gz") and not path.exists():
        path = _kept_archive(argument, root)
    try:
        with path.open("rb") as stream:
            return read_archive(stream, settings)
    except OSError as error:
        raise PackageError(
            "unreadable",
            f"{path} cannot be read: {error.strerror or error}.",
            next_step="Give a package archive, a directory, or the id of an installed package.",
        ) from error


def _kept_archive(package_id: str, root: Path | None) -> Path:
    """Return the path of an installed package's archive.

    Raises:
        PackageError: no package with this id is installed.
    """
    from remit.packages import Registry, archive_path

    place, _, ledger = open_root(root)
    with ledger:
        found = Registry.from_ledger(ledger).require(package_id)
    return place.path / archive_path(found)


def _plain(manifest: Manifest) -> dict[str, Any]:
    found = asdict(manifest)
    return {name: value for name, value in found.items() if name != "digest"} | {
        "manifest_digest": manifest.digest
    }


def _lines(manifest: Manifest) -> list[str]:
    from remit.packages import compare_permissions

    found = [
        f"{manifest.package_id} {manifest.version}: {manifest.title}",
        f"  {manifest.package_type}, {manifest.plane_id}, layer {manifest.layer}, "
        f"{manifest.spec_id}, {manifest.framework_id}",
    ]
    sections = {
        "needs": [f"{one.package_id} {one.version}" for one in manifest.dependencies],
        "takes the place of": list(manifest.supersedes),
        "governs": list(manifest.modules),
        "may do": list(compare_permissions(None, manifest.permissions).widened) or ["nothing"],
        "files": [f"{one.path} ({one.classification}) {one.sha256}" for one in manifest.assets],
    }
    for title, lines in sections.items():
        if lines:
            found += [f"{title}:", *(f"  {line}" for line in lines)]
    return found
