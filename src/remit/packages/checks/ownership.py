"""G0B: every governed file has one owner and is what that owner installed (SPEC 10)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from remit.kernel.canonical import sha256_hex
from remit.packages.checks.files import Files, reserved
from remit.packages.checks.finding import Checked, Finding
from remit.packages.errors import PackageError
from remit.packages.paths import folded
from remit.packages.registry import REGISTRY_FOLDER, Owner, Registry

__all__ = [
    "RunningCode",
    "check_modules",
    "check_ownership",
    "check_registries",
    "check_running_code",
]

_RESTORE = (
    "Run `remit package restore`, which puts back what was installed. A change comes in a new "
    "version of its package."
)


class RunningCode(Protocol):
    """The distribution that is running."""

    @property
    def version(self) -> str:
        """Its version."""
        ...

    @property
    def editable(self) -> bool:
        """Whether it runs from a source tree, so that there are no hashes to check."""
        ...

    def problems(self) -> list[str]:
        """What in its files is not as its RECORD says, a sentence each."""
        ...

    def modules(self) -> Mapping[str, Path]:
        """Its modules by dotted name, and their files."""
        ...


def check_ownership(registry: Registry, files: Files) -> Checked:
    """Every governed file owned once, its hash right; nothing else there, nothing missing.

    Args:
        registry: what is installed; an empty one does not pass.
        files: the governed files.
    """
    findings: list[Finding] = []
    if not registry.packages:
        findings.append(_nothing())
    owners = _owners(registry, findings)
    for path, problem in files.irregular():
        findings.append(
            Finding(f"{path} {problem}.", "Put the file itself there, or remove it.", path=path)
        )
    there = set()
    for path in files.paths():
        there.add(path)
        if path not in owners:
            findings.append(
                Finding(
                    f"{path} belongs to no package.",
                    "Remove it, or bring it in a package: `remit package new`.",
                    path=path,
                )
            )
    for path, owner in owners.items():
        if path not in there:
            what = f"{path}, which {owner.package_id} installed, is missing."
            findings.append(Finding(what, _RESTORE, owner.package_id, path))
            continue
        findings += _hash_findings(files, path, owner)
    counts = {"packages": len(registry.packages), "files": len(there)}
    return Checked(findings, counts)


def check_registries(
    registry: Registry, read: Callable[[str], bytes], names: Iterable[str]
) -> Checked:
    """The derived registries on disk are those that the ledger gives.

    Args:
        registry: from the ledger.
        read: reads a file by its path relative to the root, reserved places as well.
        names: of what lies in the folder of the registries.
    """
    findings: list[Finding] = []
    wanted = registry.documents()
    rebuild = "Run `remit package registry --rebuild`."
    for name, expected in wanted.items():
        path = f"{REGISTRY_FOLDER}/{name}"
        try:
            same = read(path) == expected
        except FileNotFoundError:
            findings.append(Finding(f"{path} is missing.", rebuild, path=path))
        except PackageError as error:
            findings.append(Finding(error.message, error.next_step, path=path))
        else:
            if not same:
                problem = f"{path} is not what the ledger says."
                findings.append(Finding(problem, rebuild, path=path))
    for name in names:
        if name not in wanted:
            path = f"{REGISTRY_FOLDER}/{name}"
            problem = f"{path} is none of the registries that are derived from the ledger."
            findings.append(Finding(problem, "Remove it.", path=path))
    return Checked(findings, {"registries": len(wanted)})


def check_modules(registry: Registry, modules: Collection[str]) -> Checked:
    """Every module of the runtime belongs to exactly one package.

    A name that a manifest states governs that module and everything below it, except where
    another package states a longer name.

    Args:
        registry: what is installed.
        modules: dotted names of all modules of the running distribution.
    """
    findings: list[Finding] = []
    stated: dict[str, str] = {}
    for package_id, package in registry.packages.items():
        for name in package.manifest.modules:
            other = stated.setdefault(name, package_id)
            if other != package_id:
                problem = f"{other} and {package_id} both say that they govern {name}."
                findings.append(Finding(problem, "Only one of them may.", package_id))
            if name not in modules:
                problem = f"{package_id} governs {name}, which the running code does not have."
                findings.append(
                    Finding(
                        problem,
                        "Run `remit init`, which installs the packages of this version.",
                        package_id,
                    )
                )
    for name in sorted(modules):
        if not _governed(name, stated):
            problem = f"No package governs the module {name}."
            findings.append(Finding(problem, "Install the packages of this version: `remit init`."))
    if not modules:
        findings.append(
            Finding("The running code has no modules.", "Install the distribution again.")
        )
    return Checked(findings, {"modules": len(modules)})


def check_running_code(code: RunningCode, waiver: str) -> Checked:
    """The running files are those of the distribution's RECORD, or that is waived on record.

    Args:
        code: the distribution that runs.
        waiver: id of the entry that waives this for an editable install; empty when none does.
    """
    findings: list[Finding] = []
    if code.editable and not waiver:
        problem = "The running code is an editable install: there are no hashes to check it by."
        ways = "Install Remit from a wheel; or run `remit init`, which puts a waiver on record."
        findings.append(Finding(problem, ways))
    # The waiver is for the hashes that are missing; whatever else can be seen counts.
    again = f"Install remit {code.version} anew, and see who changed it."
    findings += [Finding(problem, again) for problem in code.problems()]
    return Checked(findings, {"waived": 1} if code.editable and waiver else {})


def _owners(registry: Registry, findings: list[Finding]) -> dict[str, Owner]:
    """Whose each file is; who comes second, by id, is a finding."""
    owners: dict[str, Owner] = {}
    twins: dict[str, str] = {}
    for package_id, package in registry.packages.items():
        for asset in package.manifest.assets:
            if reserved(asset.path):
                problem = f"{package_id} owns {asset.path}, where no package may own anything."
                findings.append(Finding(problem, "Remove the package.", package_id, asset.path))
            twin = twins.setdefault(folded(asset.path), asset.path)
            if asset.path in owners or twin != asset.path:
                other = owners[twin].package_id
                problem = f"{asset.path} is owned by {package_id}, and {twin} by {other}."
                if twin == asset.path:
                    problem = f"{asset.path} is owned by {other} and by {package_id}."
                findings.append(Finding(problem, "Remove one of them.", package_id, asset.path))
                if twin == asset.path:
                    continue
            owners[asset.path] = Owner(package_id, asset.sha256, asset.classification)
    return owners


def _hash_findings(files: Files, path: str, owner: Owner) -> list[Finding]:
    try:
        found = f"sha256:{sha256_hex(files.read(path))}"
    except FileNotFoundError:
        found = "gone"
    except PackageError as error:
        return [Finding(error.message, error.next_step, owner.package_id, path)]
    if found == owner.sha256:
        return []
    problem = f"{path} is not what {owner.package_id} installed: its hash is {found}, not "
    return [Finding(f"{problem}{owner.sha256}.", _RESTORE, owner.package_id, path)]


def _governed(module: str, stated: Mapping[str, str]) -> bool:
    while module:
        if module in stated:
            return True
        module = module.rpartition(".")[0]
    return False


def _nothing() -> Finding:
    return Finding("No package is installed.", "Run `remit init`.")
