"""Gate G0B: every governed file has one owner and its installed content."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from remit.kernel.installed_files import digest_of
from remit.packages.checks.root_disk import Finding, RootDisk, compare_file
from remit.packages.distribution import Distribution
from remit.packages.paths import folded, is_reserved
from remit.packages.registry import REGISTRY_FOLDER, Owner, Registry

_RESTORE = (
    "Keep a copy of the file if you changed it: `remit package restore` replaces it with the "
    "installed one. To change a file, install a new version of its package."
)
_ONE_OWNER = "Run `remit package remove` for one of them; its archive stays stored."
_REBUILD = "Run `remit package registry --rebuild`."


def check_ownership(
    registry: Registry, disk: RootDisk, changing: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield faults of files: no owner, two owners, missing, another hash, no regular file, or owned
    in a reserved folder.

    Only files below HOT, HO2 and HO1 need an owner, except the ledger's and those in reserved
    folders. Two paths that differ only in case, each of another package, are a fault too. Links,
    and folders that cannot be listed, are faults.

    Args:
        registry: the installed packages.
        disk: the root's files.
        changing: paths of files that an operation adds or removes. Their absence, or content
            without an owner, is no finding, because the operation replaces them; other content of
            an owned file is.

    Raises:
        OSError: the root cannot be opened, or a file cannot be examined.
    """
    owners: dict[str, Owner] = {}
    known: dict[str, str] = {}
    for package_id, package in registry.packages.items():
        for asset in package.manifest.assets:
            path = asset.path
            if is_reserved(path):
                problem = f"{package_id} owns {path}, but no package may own files there."
                yield Finding(problem, f"Run `remit package remove {package_id}`.")
            twin = known.setdefault(folded(path), path)
            if twin != path:
                problem = f"{path} is owned by {package_id}, and {twin} by "
                yield Finding(f"{problem}{owners[twin].package_id}.", _ONE_OWNER)
            elif path in owners:
                problem = f"{path} is owned by {owners[path].package_id} and by {package_id}."
                yield Finding(problem, _ONE_OWNER)
                continue
            owners[path] = Owner(package_id, asset.sha256, asset.classification)
    there = set()
    for path, problem in disk.walk():
        if not problem:
            there.add(path)
        if path in changing:
            continue
        if problem:
            yield Finding(
                f"{path} {problem}.", "Replace it with the file itself, or move it out of the root."
            )
        elif path not in owners:
            fix = "Move the file out of the root, or add it to a package (`remit package new`)."
            yield Finding(f"{path} belongs to no package.", fix)
    for path, owner in owners.items():
        if path in there or path not in changing:
            what = f"the file that {owner.package_id} installed"
            yield from compare_file(disk, path, owner.sha256, what, _RESTORE)


def check_registries(registry: Registry, disk: RootDisk) -> Iterator[Finding]:
    """Yield registry files that differ from the ledger, and unknown files in their folder.

    A missing or unreadable file differs. ``registry`` was read from the ledger.

    Args:
        registry: the installed packages.
        disk: the root's files.

    Raises:
        PackageError: ``unreadable_file``: the folder of the registries cannot be listed.
        OSError: the root cannot be opened.
    """
    wanted = registry.documents()
    for name, data in wanted.items():
        what, digest = "the registry that the ledger gives", digest_of(data)
        yield from compare_file(disk, f"{REGISTRY_FOLDER}/{name}", digest, what, _REBUILD)
    for name in disk.names(REGISTRY_FOLDER):
        if name not in wanted:
            problem = "is not a registry derived from the ledger."
            yield Finding(f"{REGISTRY_FOLDER}/{name} {problem}", "Move it out of the root.")


def check_modules(registry: Registry, modules: Collection[str]) -> Iterator[Finding]:
    """Yield modules without a package or with two, and governed modules that do not exist.

    A module name in a manifest governs that module and all modules below it, except those below a
    longer name of another package.

    Findings on manifests come first, then modules without a package by name. With no modules at
    all, a last finding says so.

    Args:
        registry: the installed packages.
        modules: the dotted names of all modules of the running code.
    """
    stated: dict[str, str] = {}
    for package_id, package in registry.packages.items():
        for name in package.manifest.modules:
            other = stated.setdefault(name, package_id)
            if other != package_id:
                problem = f"Both {other} and {package_id} list the module {name}."
                yield Finding(problem, "Only one package may own it.")
            if name not in modules:
                problem = f"{package_id} governs {name}, which the running code does not have."
                fix = "Run `remit init`, which installs the packages of this version."
                yield Finding(problem, fix)
    for module in sorted(modules):
        name = module
        while name and name not in stated:
            name = name.rpartition(".")[0]
        if not name:
            fix = "Install the packages of this version: `remit init`."
            yield Finding(f"No package governs the module {module}.", fix)
    if not modules:
        yield Finding("The running code contains no modules.", "Reinstall the distribution.")


def check_running_code(code: Distribution, waiver: str) -> Iterator[Finding]:
    """Yield differences between the running files and the distribution's RECORD.

    An editable install has no hashes in RECORD, which is a finding unless a waiver is recorded; its
    other problems are findings all the same.

    Args:
        code: the running distribution, whose files are read.
        waiver: the id of the entry that waives the missing hashes; empty if there is none.

    Raises:
        OSError: a source cannot be examined.
    """
    if code.editable and not waiver:
        problem = "The running code is an editable install, which has no file hashes to check."
        fix = "Install Remit from a wheel; or run `remit init`, which records a waiver."
        yield Finding(problem, fix)
    # The waiver covers only the missing hashes; other problems are findings all the same.
    for problem in code.problems():
        yield Finding(problem, f"Reinstall remit {code.version}, and find out who changed it.")
