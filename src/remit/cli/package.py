"""``remit package``: installs, upgrades, lists, restores and removes signed packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.operations import add_commands
from remit.cli.package_files import diff_, new, pack_, show
from remit.cli.package_signatures import sign, verify
from remit.cli.shared import emit, note, open_root, reads, show_step, whoami
from remit.kernel.extensions import INDEX, load_extension

if TYPE_CHECKING:
    from remit.kernel.root import Root
    from remit.packages import IncomingArchive, InstalledPackage, PackageManager

__all__ = ["package"]

_APPROVE = click.option(
    "--approve", is_flag=True, help="Approve the requested permissions; the approval is recorded."
)


def _installing(function: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments and options of ``install`` and ``upgrade`` to a command."""
    function = _APPROVE(reads(function))
    for option in (
        click.option(
            "--dev", is_flag=True, help="Accept unsigned packages; the waiver is recorded."
        ),
        click.option(
            "--version", default="", help="From an index: this version instead of the newest."
        ),
        click.option("--index", default=None, help="Use only this index."),
        click.option("--id", "package_id", default="", help="Refuse anything but this package."),
        click.argument("archives", nargs=-1, required=True, metavar="ARCHIVE…"),
    ):
        function = option(function)
    return function


class _Index(click.Group):
    """The group ``remit package index``, loaded from the distribution ``remit-index``."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **more: Any,
    ) -> click.Context:
        return self._loaded.make_context(info_name, args, parent, **more)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._loaded.list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._loaded.get_command(ctx, cmd_name)

    @property
    def _loaded(self) -> click.Group:
        loaded: click.Group = load_extension(INDEX, "remit.commands", "package.index")
        return loaded


@click.group()
def package() -> None:
    """Manage packages, which define agents, contracts, prompts and policies."""


_index = _Index(
    "index",
    help="Manage package indexes, which are signed so that no mirror can change a package.",
)
_trust = click.Group("trust", help="Manage the keys that may sign packages of this root.")
_key = click.Group("key", help="Manage keys that sign packages.")
for _command in (new, pack_, sign, verify, show, diff_, _trust, _key, _index):
    package.add_command(_command)
add_commands(package)


@package.command()
@_installing
def install(root: Path | None, as_json: bool, **how: Any) -> None:
    """Install archives, or packages of an index by id; all of them or none."""
    _install(root, as_json, only_upgrade=False, **how)


@package.command()
@_installing
def upgrade(root: Path | None, as_json: bool, **how: Any) -> None:
    """Upgrade installed packages."""
    _install(root, as_json, only_upgrade=True, **how)


@package.command()
@click.argument("package_id")
@reads
def remove(root: Path | None, as_json: bool, package_id: str) -> None:
    """Remove a package with its files and its stored archive."""
    with _manager(root) as (_, manager):
        gone = manager.remove(package_id)
    emit(as_json, {"removed": _plain(gone)}, [f"{gone.package_id} {gone.version} removed"])


@package.command()
@click.argument("package_id")
@click.option(
    "--to", "version", default="", help="Version to go back to (default: the previous one)."
)
@_APPROVE
@reads
def rollback(
    root: Path | None, as_json: bool, package_id: str, version: str, approve: bool
) -> None:
    """Go back to an earlier installed version."""
    with _manager(root) as (_, manager):
        now = manager.rollback(package_id, version, approve=approve)
    line = f"{now.package_id} rolled back to {now.version} ({now.entry_id})"
    emit(as_json, {"packages": [_plain(now)]}, [line])


@package.command()
@click.argument("package_ids", nargs=-1, metavar="[PACKAGE_ID…]")
@reads
def restore(root: Path | None, as_json: bool, package_ids: tuple[str, ...]) -> None:
    """Restore changed and missing files of installed packages."""
    with _manager(root) as (_, manager):
        found = manager.restore(package_ids)
    lines = (
        f"{path} restored ({what} was there)" if what else f"{path} deleted"
        for path, what in found.items()
    )
    emit(as_json, {"restored": list(found)}, lines)
    if not as_json:
        note(
            f"{len(found)} files restored or deleted."
            if found
            else "No installed file was changed."
        )


@package.command("list")
@reads
def list_all(root: Path | None, as_json: bool) -> None:
    """List installed packages: your own first, then those shipped with Remit."""
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
@click.option("--check", is_flag=True, help="Exit 1 if the registries differ from the ledger.")
@click.option("--rebuild", is_flag=True, help="Rebuild the registries from the ledger.")
@reads
def registry(root: Path | None, as_json: bool, check: bool, rebuild: bool) -> None:
    """Compare the registries of installed files with the ledger."""
    with _manager(root) as (place, manager):
        if rebuild:
            manager.rebuild()
        found = manager.registry()
        differing = found.differing(place.path)
    state = f"differs from the ledger: {differing}" if differing else "matches the ledger"
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
    **how: Any,
) -> None:
    with _manager(root) as (place, manager):
        incoming = [_archive(place, manager, one, package_id, index, version) for one in archives]
        before = {one.entry_id for one in manager.registry().packages.values()}
        now = manager.install(incoming, **how)
    lines = (_install_line(one, one.entry_id in before) for one in now)
    emit(as_json, {"packages": [_plain(one) for one in now]}, lines)
    for one in () if as_json else now:
        if one.signature["waived"] and one.entry_id not in before:
            note(f"{one.package_id} is not signed. The waiver is recorded.")


def _install_line(now: InstalledPackage, unchanged: bool) -> str:
    if unchanged:
        return f"{now.package_id} {now.version} is already installed ({now.entry_id})"
    did = "upgraded to {}" if now.operation == "upgrade" else "{} installed"
    return f"{now.package_id} {did.format(now.version)} ({now.entry_id})"


def _archive(
    place: Root,
    manager: PackageManager,
    given: str,
    package_id: str,
    index: str | None,
    version: str,
) -> IncomingArchive:
    """Return the archive in a file, or of the package with that id if there is no such file."""
    from remit.packages import IncomingArchive

    file, settings = Path(given), manager.settings
    if file.exists() or given.endswith(".tar.gz") or not given.startswith("PKG-"):
        return IncomingArchive.from_file(file, settings.compressed_bytes, expected_id=package_id)
    find_in_indexes = load_extension(INDEX, "remit.package_sources", "index")
    found: IncomingArchive = find_in_indexes(
        place.path, given, version or None, settings, index=index
    )
    return found


@contextmanager
def _manager(root: Path | None) -> Iterator[tuple[Root, PackageManager]]:
    from remit.runtime import package_manager

    # Works with the shipped defaults too, as what is installed may be what has to be repaired.
    place, loaded, ledger = open_root(root)
    with ledger:
        manager = package_manager(place, ledger, loaded, by=whoami(), step=show_step)
        manager.recover()
        yield place, manager


def _plain(package: InstalledPackage) -> dict[str, Any]:
    of_manifest = (
        "package_id", "version", "title", "package_type", "plane_id", "layer", "spec_id",
        "framework_id",
    )  # fmt: skip
    of_package = (
        "operation",
        "installed_at",
        "entry_id",
        "source",
        "archive_sha256",
        "approved_by",
    )
    return {
        **{name: getattr(package.manifest, name) for name in of_manifest},
        "files": len(package.manifest.assets),
        **{name: getattr(package, name) for name in of_package},
        "signature": dict(package.signature),
    }
