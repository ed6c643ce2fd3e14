"""Operations that install, list, restore and remove packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.extensions import INDEX, load_extension
from remit.kernel.words import count
from remit.operations.operation import Answer, Note, Operation, field, verb
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    from remit.packages import IncomingArchive, InstalledPackage, PackageManager

_OF_MANIFEST = (
    "package_id", "version", "title", "package_type", "plane_id", "layer", "spec_id",
    "framework_id",
)  # fmt: skip
_OF_PACKAGE = (
    "operation", "installed_at", "entry_id", "source", "archive_sha256", "approved_by",
)  # fmt: skip


def _approve() -> Any:
    return field("Approve the requested permissions; the approval is recorded.", False)


class _Install(Operation):
    repairs, changes = True, True

    archives: list[str] = field(
        "Archives, or ids of packages of an index.", flag="", metavar="ARCHIVE…"
    )
    package_id: str = field("Refuse anything but this package.", "", flag="--id")
    index: str | None = field("Use only this index.", None)
    version: str = field("From an index: this version instead of the newest.", "")
    dev: bool = field("Accept unsigned packages; the waiver is recorded.", False)
    approve: bool = _approve()

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Install all packages or none.

        Raises:
            PackageError: a package is refused; the message says why.
        """
        manager = root.packages(caller)
        incoming = [self._archive(root, manager, one) for one in self.archives]
        self.before = {one.entry_id for one in manager.registry().packages.values()}
        is_upgrade = isinstance(self, UpgradePackages)
        now = manager.install(incoming, dev=self.dev, approve=self.approve, only_upgrade=is_upgrade)
        return {"packages": [_plain(one) for one in now]}

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield a line for each package, and notes on unsigned ones."""
        for one in found["packages"]:
            name, version, entry = one["package_id"], one["version"], one["entry_id"]
            if entry in self.before:
                yield f"{name} {version} is already installed ({entry})"
                continue
            did = "upgraded to {}" if one["operation"] == "upgrade" else "{} installed"
            yield f"{name} {did.format(version)} ({entry})"
            if one["signature"]["waived"]:
                yield Note(f"{name} is not signed. The waiver is recorded.")

    def _archive(self, root: RootPort, manager: PackageManager, given: str) -> IncomingArchive:
        """Return the archive in a file, or of the package with that id if there is no such file."""
        from remit.packages import IncomingArchive

        file, limits = Path(given), manager.settings
        if file.exists() or given.endswith(".tar.gz") or not given.startswith("PKG-"):
            wanted = self.package_id
            return IncomingArchive.from_file(file, limits.compressed_bytes, expected_id=wanted)
        find_in_indexes = load_extension(INDEX, "remit.package_sources", "index")
        found: IncomingArchive = find_in_indexes(
            root.place.path, given, self.version or None, limits, index=self.index
        )
        return found


class InstallPackages(_Install):
    """Install archives, or packages of an index by id; all of them or none."""

    command = "package install"


class UpgradePackages(_Install):
    """Upgrade installed packages."""

    command = "package upgrade"


@verb(
    "package remove", prints="{removed[package_id]} {removed[version]} removed", changes=True,
    repairs=True,
)  # fmt: skip
def remove_package(
    root: RootPort, caller: Caller, *, package_id: str = field("Id of the package.", flag="")
) -> dict[str, Any]:
    """Remove a package with its files and its stored archive.

    Raises:
        PackageError: the package is not installed, or another package needs it.
    """
    return {"removed": _plain(root.packages(caller).remove(package_id))}


def _rollback_package_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the package and its entry."""
    (now,) = found["packages"]
    yield f"{now['package_id']} rolled back to {now['version']} ({now['entry_id']})"


@verb("package rollback", changes=True, repairs=True, lines=_rollback_package_lines)
def rollback_package(
    root: RootPort, caller: Caller, *,
    package_id: str = field("Id of the package.", flag=""),
    version: str = field("Version to go back to (default: the previous one).", "", flag="--to"),
    approve: bool = _approve(),
) -> dict[str, Any]:  # fmt: skip
    """Go back to an earlier installed version.

    Raises:
        PackageError: there is no such version, or it is refused.
    """
    manager = root.packages(caller)
    now = manager.rollback(package_id, version, approve=approve)
    return {"packages": [_plain(now)]}


def _restore_packages_lines(found: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each file, and their number."""
    for path, what in found.items():
        yield f"{path} restored ({what} was there)" if what else f"{path} deleted"
    number = len(found)
    yield Note(f"{count(number, 'file')} restored or deleted." if number
               else "No installed file was changed.")  # fmt: skip


@verb("package restore", repairs=True, changes=True)
def restore_packages(
    root: RootPort, caller: Caller, *,
    package_ids: list[str] = field("Ids of packages; all by default.", [], flag="",
                                   metavar="[PACKAGE_ID…]"),
) -> Answer:  # fmt: skip
    """Restore changed and missing files of installed packages.

    Raises:
        PackageError: a package is not installed, or its archive is missing.
    """
    restored = root.packages(caller).restore(tuple(package_ids))
    return Answer({"restored": list(restored)}, _restore_packages_lines(restored))


def _list_installed_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each package."""
    width = max((len(one["package_id"]) for one in found["packages"]), default=0)
    for one in found["packages"]:
        signed = "unsigned" if one["signature"]["waived"] else "signed"
        yield f"{one['package_id']:<{width}}  {one['version']:<8}  {signed:<8}  {one['title']}"


@verb("package list", repairs=True, lines=_list_installed_lines)
def list_installed(root: RootPort, caller: Caller) -> dict[str, Any]:
    """List installed packages: your own first, then those shipped with Remit."""
    found = root.packages(caller).registry().packages.values()
    shown = [_plain(one) for one in sorted(found, key=lambda package: package.ships)]
    return {"count": len(shown), "packages": shown}


def _compare_registry_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the result and the hash."""
    if found["equal"]:
        yield "matches the ledger"
    else:
        yield f"differs from the ledger: {found['differing']}"
    yield found["sha256"]


@verb("package registry", repairs=True)
def compare_registry(
    root: RootPort, caller: Caller, *,
    check: bool = field("Exit 1 if the registries differ from the ledger.", False),
    rebuild: bool = field("Rebuild the registries from the ledger.", False),
) -> Answer:  # fmt: skip
    """Compare the registries of installed files with the ledger."""
    manager = root.packages(caller)
    if rebuild:
        manager.rebuild()
    registry = manager.registry()
    differing = registry.differing(root.place.path)
    found = {"equal": not differing, "differing": differing, "sha256": registry.digest}
    return Answer(found, _compare_registry_lines(found), check and not found["equal"])


def _plain(package: InstalledPackage) -> dict[str, Any]:
    return {
        **{name: getattr(package.manifest, name) for name in _OF_MANIFEST},
        "files": len(package.manifest.assets),
        **{name: getattr(package, name) for name in _OF_PACKAGE},
        "signature": dict(package.signature),
    }
