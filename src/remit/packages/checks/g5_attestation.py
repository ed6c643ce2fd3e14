"""Gate G5: installed packages are the signed ones, or a waiver is recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from remit.kernel.installed_files import digest_of
from remit.kernel.root import Root
from remit.ledger import LedgerClient
from remit.packages.checks.root_disk import Check, Finding, RootDisk, compare_file
from remit.packages.errors import PackageError
from remit.packages.journal import INSTALLED_FOLDER
from remit.packages.registry import (
    InstalledPackage,
    Registry,
    archive_path,
    envelope_path,
    receipt_bytes,
    receipt_path,
)
from remit.packages.shipped import is_root_key, root_key_path
from remit.packages.signatures import check_envelope
from remit.packages.signing_key import PackageKey
from remit.packages.trust import read_trust, trust_problem
from remit.packages.trust_policy import TrustPolicy

_REBUILD = "Run `remit package registry --rebuild`, which rewrites receipts from the ledger."
_REINSTALL = (
    "If Remit shipped the package, run `remit init`; otherwise install the same archive again."
)
_RESTORE = (
    "Keep a copy of the file: `remit package trust restore` replaces it with the recorded version."
)


def check_attestation(
    registry: Registry, disk: RootDisk, root: Path, ledger: LedgerClient, *, envelope_bytes: int
) -> Check:
    """Check receipts, stored archives and signatures of all packages, and the trusted keys.

    ``trust.json`` must be the recorded one. The root's own key, if its file exists, must be
    trusted. Receipt and archive of each package must have the recorded hash, and so must the
    signatures, unless they were waived. Unchanged signatures are verified again, with the threshold
    of the installation, without expiry, and by keys that are not revoked; but not at all if the
    trusted keys cannot be read. No folder of an unknown package may exist. Yields a
    finding for each fault. Files are only read.

    Args:
        registry: the installed packages.
        disk: the root's files.
        root: the root's directory.
        ledger: the root's ledger.
        envelope_bytes: most bytes of a signature file.

    Returns:
        One line with the number of signed and of waived packages.

    Raises:
        PackageError: a stored signature cannot be read a second time.
        LedgerError: the ledger cannot be read.
        OSError: the root cannot be opened.
    """
    policy: TrustPolicy | None = None
    if problem := trust_problem(root / TrustPolicy.FILE, ledger):
        yield Finding(problem, _RESTORE)
    try:
        policy = read_trust(root / TrustPolicy.FILE, ledger)
        yield from _root_key(root, policy)
    except PackageError as error:
        if policy is not None or not problem:
            yield Finding.of(error)
    waived = 0
    for package_id, package in registry.packages.items():
        recorded = f"that {package.entry_id} in the ledger records"
        digest = digest_of(receipt_bytes(package))
        what = f"the receipt of {package_id} {recorded}"
        yield from compare_file(disk, receipt_path(package_id), digest, what, _REBUILD)
        path, what = archive_path(package), f"the archive of {package_id} "
        yield from compare_file(disk, path, package.archive_sha256, what + recorded, _REINSTALL)
        if package.signature.get("waived") is True:
            waived += 1
            continue
        path, what = envelope_path(package), f"the signature of {package_id} "
        digest = str(package.signature.get("envelope_sha256"))
        wrong = list(compare_file(disk, path, digest, what + recorded, _REINSTALL))
        yield from wrong
        if policy is not None and not wrong:
            yield from _signature(package, disk.read(path), policy, envelope_bytes)
    try:
        for name in disk.names(INSTALLED_FOLDER):
            if name not in registry.packages and not name.startswith("."):
                problem = f"{INSTALLED_FOLDER}/{name} exists, but the ledger records no installed "
                fix = "Move it out of the root."
                yield Finding(f"{problem}package {name}.", fix)
    except PackageError as error:
        yield Finding.of(error)
    count = len(registry.packages)
    return (
        f"{count} packages have their receipt and archive; {count - waived} signed, {waived} "
        "waived by an entry"
    )


def _root_key(root: Path, policy: TrustPolicy) -> Iterator[Finding]:
    """Yield a finding if the file of the root's own key contains a key that is not trusted."""
    place = root_key_path(Root(root))
    if os.path.lexists(place) and not is_root_key(policy, PackageKey.load(place)):
        problem = f"{place.relative_to(root).as_posix()} is not a trusted key."
        fix = "Find out who created it, and move it away; `remit init` creates a new one."
        yield Finding(problem, fix)


def _signature(
    package: InstalledPackage, envelope: bytes, policy: TrustPolicy, envelope_bytes: int
) -> Iterator[Finding]:
    needed = package.signature.get("threshold")
    try:
        check_envelope(
            envelope,
            archive_digest=package.archive_sha256,
            manifest=package.manifest,
            policy=policy,
            installed=True,
            # A threshold that rose since applies to later installations only.
            threshold=needed if isinstance(needed, int) and needed > 0 else None,
            max_bytes=envelope_bytes,
        )
    except PackageError as error:
        problem = f"The signature of {package.package_id} {package.version}: {error.message}"
        yield Finding(problem, error.next_step)
