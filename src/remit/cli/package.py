"""``remit package``: what shapes agents, in signed packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.package_authoring import diff_, new, pack_, show
from remit.cli.package_index import index
from remit.cli.package_signatures import sign, verify
from remit.cli.package_trust import key, trust
from remit.cli.shared import emit, note, open_root, reads, show_step, whoami

if TYPE_CHECKING:
    from remit.kernel.root import Root
    from remit.packages import IncomingArchive, InstalledPackage, PackageManager

__all__ = ["package"]

_APPROVE = click.option(
    "--approve", is_flag=True, help="They may do what they ask for; the record says who approved."
)


def _installing(function: Callable[..., None]) -> Callable[..., None]:
    """What ``install`` and ``upgrade`` take."""
    function = _APPROVE(reads(function))
    for option in (
        click.option("--dev", is_flag=True, help="Let unsigned ones pass; the record says so."),
        click.option("--version", default="", help="From an index: this version, not the newest."),
        click.option("--index", default=None, help="From this index alone."),
        click.option("--id", "package_id", default="", help="Refuse anything but this package."),
        click.argument("archives", nargs=-1, required=True, metavar="ARCHIVE…"),
    ):
        function = option(function)
    return function


@click.group()
def package() -> None:
    """Packages: what shapes agents, signed, checked and recorded."""


for _command in (new, pack_, sign, verify, show, diff_, trust, key, index):
    package.add_command(_command)


@package.command()
@_installing
def install(root: Path | None, as_json: bool, **how: Any) -> None:
    """Install archives, or packages of an index by their ids: all of them or none."""
    _install(root, as_json, only_upgrade=False, **how)


@package.command()
@_installing
def upgrade(root: Path | None, as_json: bool, **how: Any) -> None:
    """Bring installed packages to a newer version."""
    _install(root, as_json, only_upgrade=True, **how)


@package.command()
@click.argument("package_id")
@reads
def remove(root: Path | None, as_json: bool, package_id: str) -> None:
    """Take a package and its files away; its archive is gone too."""
    with _manager(root) as (_, manager):
        gone = manager.remove(package_id)
    emit(as_json, {"removed": _plain(gone)}, [f"{gone.package_id} {gone.version} removed"])


@package.command()
@click.argument("package_id")
@click.option("--to", "version", default="", help="To this version (default: the one before).")
@_APPROVE
@reads
def rollback(
    root: Path | None, as_json: bool, package_id: str, version: str, approve: bool
) -> None:
    """Go back to a version that was installed before."""
    with _manager(root) as (_, manager):
        now = manager.rollback(package_id, version, approve=approve)
    line = f"{now.package_id} rolled back to {now.version} ({now.entry_id})"
    emit(as_json, {"packages": [_plain(now)]}, [line])


@package.command()
@click.argument("package_ids", nargs=-1, metavar="[PACKAGE_ID…]")
@reads
def restore(root: Path | None, as_json: bool, package_ids: tuple[str, ...]) -> None:
    """Put changed and missing files of packages back, as they were installed."""
    with _manager(root) as (_, manager):
        found = manager.restore(package_ids)
    lines = (
        f"{path} restored ({what} was there)" if what else f"{path} deleted"
        for path, what in found.items()
    )
    emit(as_json, {"restored": list(found)}, lines)
    if not as_json:
        note(f"{len(found)} files changed." if found else "Every file is as it was installed.")


@package.command("list")
@reads
def list_all(root: Path | None, as_json: bool) -> None:
    """What is installed: one's own packages first, then those that come with Remit."""
    with _manager(root) as (_, manager):
        packages = sorted(manager.registry().packages.values(), key=lambda package: package.ships)
    width = max((len(package.package_id) for package in packages), default=0)
    lines = (
        f"{package.package_id:<{width}}  {package.version:<8}  "
        f"{'unsigned' if package.signature['waived'] else 'signed':<8}  {package.manifest.title}"
        for package in packages
    )
    found = {"count": len(packages), "packages": [_plain(package) for package in packages]}
    emit(as_json, found, lines)


@package.command()
@click.option("--check", is_flag=True, help="Exit 1 when they are not what the ledger says.")
@click.option("--rebuild", is_flag=True, help="Write them again from the ledger.")
@reads
def registry(root: Path | None, as_json: bool, check: bool, rebuild: bool) -> None:
    """The registries of packages, specifications, frameworks and files, from the ledger."""
    from remit.packages import REGISTRY_FOLDER

    with _manager(root) as (place, manager):
        if rebuild:
            manager.rebuild()
        found = manager.registry()
        differing = [
            name
            for name, data in found.documents().items()
            if _bytes(place.path / REGISTRY_FOLDER / name) != data
        ]
    state = f"not as the ledger says: {differing}" if differing else "equal to the ledger"
    summary = {"equal": not differing, "differing": differing, "sha256": found.digest}
    emit(as_json, summary, [state, found.digest])
    raise SystemExit(1 if check and differing else 0)


def _install(
    root: Path | None,
    as_json: bool,
    archives: tuple[str, ...],
    package_id: str,
    index: str | None,
    version: str,
    dev: bool,
    approve: bool,
    only_upgrade: bool,
) -> None:
    with _manager(root) as (place, manager):
        offers = [_offer(place, manager, one, package_id, index, version) for one in archives]
        before = manager.registry().packages
        now = manager.install(offers, dev=dev, approve=approve, only_upgrade=only_upgrade)
    emit(as_json, {"packages": [_plain(one) for one in now]}, (
        _install_line(one, before.get(one.package_id)) for one in now
    ))  # fmt: skip
    for one in () if as_json else now:
        if one.signature["waived"] and not _unchanged(one, before.get(one.package_id)):
            note(f"{one.package_id} is not signed; that is waived, and on record.")


def _unchanged(now: InstalledPackage, before: InstalledPackage | None) -> bool:
    return before is not None and before.entry_id == now.entry_id


def _install_line(now: InstalledPackage, before: InstalledPackage | None) -> str:
    if _unchanged(now, before):
        return f"{now.package_id} {now.version} is installed ({now.entry_id})"
    did = "upgraded to {}" if now.operation == "upgrade" else "{} installed"
    return f"{now.package_id} {did.format(now.version)} ({now.entry_id})"


def _offer(
    place: Root,
    manager: PackageManager,
    given: str,
    package_id: str,
    index: str | None,
    version: str,
) -> IncomingArchive:
    """The archive in a file; or, where there is no such file, of the package with that id."""
    from remit.packages import IncomingArchive

    file = Path(given)
    if file.exists() or given.endswith(".tar.gz") or not given.startswith("PKG-"):
        limit = manager.settings.compressed_bytes
        return IncomingArchive.from_file(file, limit, expected_id=package_id)
    from remit.packages.index import find_in_indexes  # needs the extra

    return find_in_indexes(place.path, given, version or None, manager.settings, index=index)


@contextmanager
def _manager(root: Path | None) -> Iterator[tuple[Root, PackageManager]]:
    from remit.runtime import package_manager

    # Works with the shipped defaults too, as what is installed may be what has to be repaired.
    place, loaded, ledger = open_root(root)
    with ledger:
        manager = package_manager(place, ledger, loaded, by=whoami(), step=show_step)
        manager.recover()
        yield place, manager


def _plain(one: InstalledPackage) -> dict[str, Any]:
    manifest = one.manifest
    return {
        "package_id": one.package_id,
        "version": one.version,
        "title": manifest.title,
        "package_type": manifest.package_type,
        "plane_id": manifest.plane_id,
        "layer": manifest.layer,
        "spec_id": manifest.spec_id,
        "framework_id": manifest.framework_id,
        "files": len(manifest.assets),
        "operation": one.operation,
        "installed_at": one.installed_at,
        "entry_id": one.entry_id,
        "source": one.source,
        "archive_sha256": one.archive_sha256,
        "signature": dict(one.signature),
        "approved_by": one.approved_by,
    }


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
