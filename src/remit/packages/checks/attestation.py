"""G5: what is installed is what was signed, or the record says that this was waived (SPEC 10)."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from remit.kernel.canonical import sha256_hex
from remit.kernel.root import Root
from remit.ledger import LedgerClient
from remit.packages.checks.files import RootDisk
from remit.packages.checks.finding import Checked, Finding
from remit.packages.errors import PackageError
from remit.packages.files import INSTALLED_FOLDER
from remit.packages.package_key import PackageKey
from remit.packages.receipts import archive_path, envelope_path, receipt_bytes, receipt_path
from remit.packages.registry import InstalledPackage, Registry
from remit.packages.trust import TrustPolicy, read_trust, trust_problem
from remit.packages.verification import check_envelope

__all__ = ["check_attestation"]

_REBUILD = "Run `remit package registry --rebuild`; it writes receipts again from the ledger."
_AGAIN = "Run `remit init` if it came with Remit; else install the same archive again."
_RESTORE = "`remit package trust restore` puts back what is on record."


def check_attestation(
    registry: Registry,
    disk: RootDisk,
    root: Path,
    ledger: LedgerClient,
    *,
    now: datetime,
    envelope_bytes: int,
) -> Checked:
    """Receipts, kept archives and signatures of all packages; that trust is as on record,
    and the root's own key one that is trusted.

    Args:
        registry: what is installed, from the ledger; an empty one does not pass.
        disk: the root's files, reserved places as well.
        root: the root's directory.
        ledger: its record.
        now: the time, with its zone.
        envelope_bytes: largest signature file.
    """
    findings: list[Finding] = []
    if not registry.packages:
        findings.append(Finding("No package is installed.", "Run `remit init`."))
    policy: TrustPolicy | None = None
    trust_file = root / TrustPolicy.FILE
    if problem := trust_problem(trust_file, ledger):
        findings.append(Finding(problem, _RESTORE, path=TrustPolicy.FILE))
    try:
        policy = read_trust(trust_file, ledger)
    except PackageError as error:
        if not problem:
            findings.append(Finding(error.message, error.next_step, path=TrustPolicy.FILE))
    if policy is not None:
        findings += _root_key(root, policy)
    signed = waived = 0
    for package_id, package in registry.packages.items():
        findings += _receipt(package, disk)
        findings += _archive(package, disk)
        if package.signature.get("waived") is True:
            waived += 1
            continue
        signed += 1
        if policy is None:
            problem = f"The signature of {package_id} is not looked at: whom to trust is not known."
            findings.append(Finding(problem, "Restore trust first.", package_id))
            continue
        findings += _signature(package, disk, policy, now, envelope_bytes)
    try:
        strays = [name for name in disk.names(INSTALLED_FOLDER) if not name.startswith(".")]
    except PackageError as error:
        strays = []
        findings.append(Finding(error.message, error.next_step, path=INSTALLED_FOLDER))
    for name in strays:
        if name not in registry.packages:
            path = f"{INSTALLED_FOLDER}/{name}"
            problem = f"{path} is there, but the ledger knows no installed package {name}."
            findings.append(Finding(problem, "Remove it; what is not on record counts for nothing.",
                                    path=path))  # fmt: skip
    counts = {"packages": len(registry.packages), "signed": signed, "waived": waived}
    return Checked(findings, counts)


def _root_key(root: Path, policy: TrustPolicy) -> list[Finding]:
    """The key in the place of the root's own is one that may sign."""
    from remit.packages.shipped import is_root_key, root_key_path  # which needs the checks

    place = root_key_path(Root(root))
    path = place.relative_to(root).as_posix()
    if not os.path.lexists(place):
        return []
    try:
        if is_root_key(policy, PackageKey.load(place)):
            return []
    except PackageError as error:
        return [Finding(error.message, error.next_step, path=path)]
    problem = f"{path} is not a key that is trusted on record."
    ways = "Find out who put it there, and move it away; `remit init` makes a new one."
    return [Finding(problem, ways, path=path)]


def _receipt(package: InstalledPackage, disk: RootDisk) -> list[Finding]:
    path = receipt_path(package.package_id)
    try:
        if disk.read(path) == receipt_bytes(package):
            return []
        problem = f"{path} is not what {package.entry_id} in the ledger says."
        return [Finding(problem, _REBUILD, package.package_id, path, package.entry_id)]
    except FileNotFoundError:
        problem = f"{path}, the receipt of {package.package_id}, is missing."
        return [Finding(problem, _REBUILD, package.package_id, path, package.entry_id)]
    except PackageError as error:
        return [Finding(error.message, error.next_step, package.package_id, path)]


def _archive(package: InstalledPackage, disk: RootDisk) -> list[Finding]:
    path = archive_path(package.package_id, package.version)
    try:
        found = f"sha256:{sha256_hex(disk.read(path))}"
    except FileNotFoundError:
        problem = f"{path}, the archive that {package.package_id} was installed from, is missing."
        return [Finding(problem, _AGAIN, package.package_id, path, package.entry_id)]
    except PackageError as error:
        return [Finding(error.message, error.next_step, package.package_id, path)]
    if found == package.archive_sha256:
        return []
    problem = f"{path} has the hash {found}; installed was {package.archive_sha256}."
    return [Finding(problem, _AGAIN, package.package_id, path, package.entry_id)]


def _signature(
    package: InstalledPackage,
    disk: RootDisk,
    policy: TrustPolicy,
    now: datetime,
    envelope_bytes: int,
) -> list[Finding]:
    package_id, path = package.package_id, envelope_path(package.package_id, package.version)
    try:
        envelope = disk.read(path)
        stated = package.signature.get("envelope_sha256")
        found = f"sha256:{sha256_hex(envelope)}"
        if found != stated:
            problem = f"{path} is not the signature that {package.entry_id} records."
            return [Finding(problem, _AGAIN, package_id, path, package.entry_id)]
        needed = package.signature.get("threshold")
        check_envelope(
            envelope,
            archive_digest=package.archive_sha256,
            manifest=package.manifest,
            policy=policy,
            now=now,
            installed=True,
            # What was asked for then; a root whose threshold rose since asks it of what comes.
            threshold=needed if isinstance(needed, int) and needed > 0 else None,
            max_bytes=envelope_bytes,
        )
    except FileNotFoundError:
        problem = f"{package_id} was installed signed, and {path} is missing."
        return [Finding(problem, _AGAIN, package_id, path, package.entry_id)]
    except PackageError as error:
        problem = f"The signature of {package_id} {package.version}: {error.message}"
        return [Finding(problem, error.next_step, package_id, path, package.entry_id)]
    return []
