"""Writes a tenant out: ledger, key, a proof from the host, packages."""

from __future__ import annotations

import shutil
from pathlib import Path

from remit.kernel.errors import RemitError
from remit.kernel.files import fsync_tree
from remit.ledger import LedgerClient, Progress, entry_id
from remit.ledger.log_of_logs import latest_head, prove_through
from remit.runtime.tenants.tenant import Tenant, take_checkpoint

__all__ = ["export_tenant"]


def export_tenant(
    ledger: LedgerClient,
    tenant: Tenant,
    log: LedgerClient,
    directory: Path,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write a tenant out: ``ledger.jsonl``, the whole export of its ledger; ``key.vkey``, which
    checks it; ``proof.json``, its last entry from a head of the host; ``packages/``, the archives
    of what is installed, with their signatures.

    Args:
        ledger: of the host, opened with its key.
        tenant: whose.
        log: the tenant's ledger, opened with its key.
        directory: which is made, or empty.
        progress: called with the entries done and their total.

    Returns:
        How many ``entries`` and ``packages`` were written.

    Raises:
        RemitError: the directory holds something, or cannot be written.
        LedgerError: what :func:`take_checkpoint` and the export raise.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise RemitError(f"{directory} is not empty.", next_step="Choose a new directory.")
        take_checkpoint(ledger, tenant, log)
        entries = log.export(directory / "ledger.jsonl", progress=progress)
        (directory / "key.vkey").write_text(f"{log.verifier_key}\n", "utf-8")
        head = latest_head(ledger, tenant.name)
        last = entry_id(min(entries, head.checkpoint.size if head else entries) - 1)
        proof = prove_through(ledger, tenant.name, log, last)
        (directory / "proof.json").write_text(str(proof), "utf-8")
        packages = directory / "packages"
        packages.mkdir()
        found = sorted(tenant.root.tier("hot").glob("installed/*/archives/*"))
        for path in found:
            if not path.resolve().is_relative_to(tenant.root.path.resolve()):
                raise RemitError(f"{path} points outside the root of the tenant.")
            name = f"{path.parents[1].name}-{path.name}"
            shutil.copyfile(path, packages / name)
        fsync_tree(directory)  # a removal may follow, and then this is the only copy
    except OSError as error:
        raise RemitError(
            f"The tenant cannot be exported to {directory}: {error.strerror or error}.",
            next_step="Check the free space and the permissions.",
        ) from error
    return {"entries": entries, "packages": sum(p.name.endswith(".tar.gz") for p in found)}
