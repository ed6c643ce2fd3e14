"""Operations that install, list, restore and remove packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.extensions import INDEX, load_extension
from remit.operations.agent_tools import AgentTool, ToolCall
from remit.operations.operation import Answer, field, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Note, Table, table_of

if TYPE_CHECKING:
    from remit.kernel.settings import PackageSettings
    from remit.packages import IncomingArchive, InstalledPackage

_OF_MANIFEST = (
    "package_id", "version", "title", "package_type", "plane_id", "layer", "spec_id",
    "framework_id",
)  # fmt: skip
_OF_PACKAGE = (
    "operation", "installed_at", "entry_id", "source", "archive_sha256", "approved_by",
)  # fmt: skip


def _lines(found: dict[str, Any]) -> Iterator[Table]:
    """Yield the table of the changed packages."""
    yield table_of(found["packages"], "package_id", "version", "operation", "entry_id")


_APPROVE: Any = field("Approve the requested permissions; the approval is recorded.", False)


def _declare_install(name: str, doc: str, *, only_upgrade: bool) -> None:
    @verb(f"package {name}", repairs=True, changes=True, doc=doc, lines=_lines)
    def install(
        root: RootPort, caller: Caller, *,
        archives: list[str] = field(
            "Archives, or ids of packages of an index.", flag="", metavar="ARCHIVE…"
        ),
        package_id: str = field("Refuse anything but this package.", "", flag="--id"),
        index: str | None = field("Use only this index.", None),
        version: str = field("From an index: this version instead of the newest.", ""),
        dev: bool = field("Accept unsigned packages; the waiver is recorded.", False),
        approve: bool = _APPROVE,
    ) -> dict[str, Any]:  # fmt: skip
        """Install all packages or none.

        Raises:
            PackageError: a package is refused; the message says why.
        """
        manager = root.packages(caller)
        incoming = [
            _archive(root, manager.settings, one, package_id, index, version) for one in archives
        ]
        now = manager.install(incoming, dev=dev, approve=approve, only_upgrade=only_upgrade)
        return {"packages": [_plain(one) for one in now]}


def _archive(
    root: RootPort, limits: PackageSettings, given: str, package_id: str, index: str | None,
    version: str,
) -> IncomingArchive:  # fmt: skip
    """Return the archive in a file, or of the package with that id if there is no such file."""
    from remit.packages import IncomingArchive

    file = Path(given)
    if file.exists() or given.endswith(".tar.gz") or not given.startswith("PKG-"):
        return IncomingArchive.from_file(file, limits.compressed_bytes, expected_id=package_id)
    find_in_indexes = load_extension(INDEX, "remit.package_sources", "index")
    found: IncomingArchive = find_in_indexes(
        root.place.path, given, version or None, limits, index=index
    )
    return found


_declare_install(
    "install", "Install archives, or packages of an index by id. All or none are installed.",
    only_upgrade=False,
)  # fmt: skip
_declare_install("upgrade", "Upgrade installed packages.", only_upgrade=True)


_PACKAGE: Any = field("Id of the package.", flag="", is_name=True)


@verb(
    "package remove", prints="{removed[package_id]} {removed[version]} removed", changes=True,
    repairs=True,
)  # fmt: skip
def remove_package(root: RootPort, caller: Caller, *, package_id: str = _PACKAGE) -> dict[str, Any]:
    """Remove a package with its files and its stored archive.

    Returns:
        ``removed``, the package as it was installed. A ``REMOVED`` entry is appended.

    Raises:
        PackageError: the package is not installed or is learned, another package needs it,
            installed files were changed, a gate refuses the change, another process holds the lock
            of packages, files cannot be written, or an entry does not describe a package. Nothing
            was changed, except with ``unfinished``: the removal is recorded, and the next command
            on packages deletes the files.
        LedgerError: the ledger cannot be read or written.
        OSError: a part of the root cannot be read.
    """
    return {"removed": _plain(root.packages(caller).remove(package_id))}


@verb("package rollback", changes=True, repairs=True, lines=_lines)
def rollback_package(
    root: RootPort, caller: Caller, *,
    package_id: str = _PACKAGE,
    version: str = field("Version to go back to (default: the previous one).", "", flag="--to"),
    approve: bool = _APPROVE,
) -> dict[str, Any]:  # fmt: skip
    """Go back to an earlier installed version.

    Returns:
        ``packages``, with the package as it is installed now.

    Raises:
        PackageError: the package is not installed, no such version was, its stored archive is
            lost, it has permissions that the present one lacks and ``approve`` is False, or a
            reason of :func:`remove_package`; ``unfinished`` means here that the next command writes
            the files.
        LedgerError: the ledger cannot be read or written.
        OSError: a part of the root cannot be read.
    """
    manager = root.packages(caller)
    now = manager.rollback(package_id, version, approve=approve)
    return {"packages": [_plain(now)]}


def _restore_packages_lines(found: Mapping[str, str]) -> Iterator[str]:
    for path, what in found.items():
        yield f"{path} restored ({what} was there)" if what else f"{path} deleted"
    if not found:
        yield Note("No installed file was changed.")


@verb("package restore", repairs=True, changes=True)
def restore_packages(
    root: RootPort, caller: Caller, *,
    package_ids: list[str] = field("Ids of packages; all by default.", [], flag="",
                                   metavar="[PACKAGE_ID…]"),
) -> Answer:  # fmt: skip
    """Restore changed and missing files of installed packages.

    Returns:
        ``restored``, the paths of written files, and without ids also those of files that no
        package owns any more, which are deleted. No entry is appended.

    Raises:
        PackageError: a package is not installed, its archive is missing, damaged or not admitted
            any more, another process holds the lock of packages, files cannot be written, or an
            entry does not describe a package. Other files may be restored by then.
        LedgerError: the ledger cannot be read.
        OSError: the journal of packages cannot be read.
    """
    restored = root.packages(caller).restore(tuple(package_ids))
    return Answer({"restored": list(restored)}, _restore_packages_lines(restored))


_ROW = ("package_id", "version", "title", "plane_id", "spec_id", "framework_id")


def _shape(call: ToolCall, found: dict[str, Any]) -> dict[str, Any]:
    """Return the packages with a few of their facts."""
    rows = [{**{name: one[name] for name in _ROW}, "signed": not one["signature"]["waived"]}
            for one in found["packages"]]  # fmt: skip
    return {**found, "packages": rows}


def _say(output: dict[str, Any]) -> str:
    rows = output["packages"]
    names = ", ".join(f"{row['package_id']} {row['version']}" for row in rows)
    among = "" if len(rows) == output["count"] else ", among them"
    return f"There are {output['count']} packages installed{among}: {names}."


_TOOL = AgentTool(
    name="list_packages", label="packages", has_status=False, shape=_shape,
    about="List all installed packages: their ids, versions, titles and what they belong to.",
    examples=(
        "list all installed packages", "which packages are installed?", "show the packages",
        "what is installed here?", "how many packages are there?",
        "which version of the software is running?",
    ),
    describe=_say,
)  # fmt: skip


@verb(
    "package list", repairs=True, agent_tools=(_TOOL,),
    lines=lambda found: [table_of(found["packages"], "package_id", "version", "title")],
)  # fmt: skip
def list_installed(root: RootPort, caller: Caller) -> dict[str, Any]:
    """List installed packages: your own first, then those shipped with Remit.

    Returns:
        ``count`` and ``packages``, each part sorted by id: the facts of manifest and installation,
        ``files`` (their number) and ``signature``.

    Raises:
        PackageError: an entry does not describe a package.
        LedgerError: the ledger cannot be read.
    """
    found = root.packages(caller).registry().packages.values()
    shown = [_plain(one) for one in sorted(found, key=lambda package: package.ships)]
    return {"count": len(shown), "packages": shown}


@verb("package registry", repairs=True)
def compare_registry(
    root: RootPort, caller: Caller, *,
    check: bool = field("Exit 1 if the registries differ from the ledger.", False),
    rebuild: bool = field("Rebuild the registries from the ledger.", False),
) -> Answer:  # fmt: skip
    """Compare the registries of installed files with the ledger.

    Returns:
        ``equal``, ``differing`` (names of files in ``HOT/registries``) and ``sha256`` of the
        registry in the ledger.

    Raises:
        PackageError: an entry does not describe a package, another operation on packages is
            running, or the disk does not accept the registries.
        OSError: a registry cannot be read.
        LedgerError: the ledger cannot be read.
    """
    manager = root.packages(caller)
    if rebuild:
        manager.rebuild()
    registry = manager.registry()
    differing = registry.differing(root.place.path)
    found = {"equal": not differing, "differing": differing, "sha256": registry.digest}
    verdict = (f"The registries differ from the ledger: {', '.join(differing)}."
               if differing else "The registries match the ledger.")  # fmt: skip
    return Answer(found, [verdict, registry.digest], check and bool(differing))


def _plain(package: InstalledPackage) -> dict[str, Any]:
    return {
        **{name: getattr(package.manifest, name) for name in _OF_MANIFEST},
        "files": len(package.manifest.assets),
        **{name: getattr(package, name) for name in _OF_PACKAGE},
        "signature": dict(package.signature),
    }
