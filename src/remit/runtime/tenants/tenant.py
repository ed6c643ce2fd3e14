"""Tenants of a root: each a root of its own, with its own ledger, keys, budgets and packages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.kernel.tenant import HOST, TENANTS, TenantFile, check_name, is_name
from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    LedgerKey,
    LedgerKeyError,
    known_as,
    ledger_key,
    open_root_ledger,
)
from remit.ledger.log_of_logs import take_head
from remit.ledger.tlog import SignedCheckpoint, VerifierKey
from remit.runtime.installation import Step, make_root
from remit.runtime.state import check_state
from remit.runtime.tenants.places import Place
from remit.runtime.tenants.plan import save

__all__ = ["REMOVED", "Tenant", "TenantHost", "create_tenant", "find_tenant",
           "interrupted_tenants", "list_tenants", "open_log", "place_of", "recorded_key",
           "removals", "require_recorded", "root_of", "schema_of", "take_checkpoint",
           "tenant_names"]  # fmt: skip

REMOVED = "TENANT_REMOVED"
"""The event by which the host puts the removal of a tenant on record."""

_LEDGER = "ledger.db"


@dataclass(frozen=True, slots=True)
class TenantHost:
    """A host, as a process that changes its tenants has it open.

    Attributes:
        root: its root.
        ledger: its ledger, opened with its key.
        path: its ``[ledger] path``.
        by: who acts, for the record.
        step: called with the name of each step before the step.
    """

    root: Root
    ledger: LedgerClient
    path: str
    by: str = "recovery"
    step: Step = lambda _: None

    def record(self, event: str, tenant: str, reason: str, *, once: str = "", **data: Any) -> str:
        """Put what became of a tenant on record; return the entry's id.

        Args:
            event: its type, whose last word is the decision.
            tenant: the name.
            reason: of the entry.
            once: write nothing if there is an entry with the same value of this field.
            data: fields of the metadata.
        """
        if once:
            for entry in self.ledger.query(event_type=event, submission_id=tenant):
                if entry.metadata[once] == data[once]:
                    return entry.id
        metadata = {"tenant": tenant, **data, "by": self.by}
        decision = event.rpartition("_")[2]
        return self.ledger.write(LedgerEntry(event, tenant, decision, reason, metadata=metadata))


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant of a host.

    Attributes:
        root: its root, below the host's.
        file: what its root says of it.
    """

    root: Root
    file: TenantFile

    @property
    def name(self) -> str:
        """Of lower-case letters, digits and hyphens."""
        return self.file.name

    @property
    def place(self) -> str:
        """Where its ledger is, without passwords, for people and the record."""
        return place_of(self.file)


def place_of(file: TenantFile) -> str:
    """Where a tenant's ledger is, without passwords."""
    if not file.database:
        return file.ledger
    if file.database == HOST:
        return f"schema {file.ledger} of the host's database"
    from remit.ledger import masked

    return f"schema {file.ledger} of {masked(file.database)}"


def root_of(host: Root, name: str) -> Root:
    """Where a tenant's root is, or would be."""
    return Root(host.path / TENANTS / check_name(name))


def tenant_names(host: Root) -> list[str]:
    """Names of the tenants that are there, made to the end or not; no other folders."""
    return _names_with(host, TenantFile.path)


def interrupted_tenants(host: Root) -> list[str]:
    """Names of the tenants that are being moved or removed, by a process that lives or died."""
    found = (_names_with(host, of) for of in (TenantFile.moving_path, TenantFile.removing_path))
    return sorted({name for names in found for name in names})


def _names_with(host: Root, file: Callable[[Path], Path]) -> list[str]:
    found = (path.parent.name for path in (host.path / TENANTS).glob(f"*/{file(host.path).name}"))
    return sorted(name for name in found if is_name(name))


def find_tenant(host: Root, name: str) -> Tenant:
    """A tenant.

    Raises:
        RemitError: there is none of that name, or it was not made to the end.
    """
    root = root_of(host, name)
    file = TenantFile.read(root.path)
    if file is None:
        raise RemitError(
            f"The tenant {name} does not exist.", next_step="`remit tenant list` lists the tenants."
        )
    if not file.ready:
        raise RemitError(
            f"The creation of the tenant {name} was interrupted.",
            next_step=f"`remit tenant create {name}` completes it.",
        )
    if file.name != name:
        raise RemitError(
            f"{TenantFile.path(root.path)} belongs to the tenant {file.name}.",
            next_step="Do not copy or rename the root of a tenant; restore its own file.",
        )
    return Tenant(root, file)


def list_tenants(host: Root) -> list[Tenant]:
    """All tenants that were made to the end, by name."""
    files = ((name, TenantFile.read(root_of(host, name).path)) for name in tenant_names(host))
    return [Tenant(root_of(host, name), file) for name, file in files if file and file.ready]


def schema_of(name: str) -> str:
    """The schema of a tenant's ledger in a PostgreSQL database."""
    return f"remit_tenant_{name.replace('-', '_')}"


def create_tenant(host: TenantHost, name: str, *, database: str = "") -> Tenant:
    """Make a tenant; one that was not made to the end is made now.

    Args:
        host: of the tenant.
        name: of the tenant.
        database: URL of a PostgreSQL database for the tenant's ledger; where it is left out, the
            host's database, or a file where the host's ledger is in one.

    Raises:
        RemitError: there is one of that name, the host is itself a tenant, or the root or ledger
            cannot be made; calling this again finishes it.
    """
    root, ledger = root_of(host.root, name), host.ledger
    if TenantFile.read(host.root.path) is not None:
        raise RemitError("A tenant cannot have tenants.", next_step="Use the root of the host.")
    if ledger.verifier_key is None:
        raise LedgerKeyError("This root has no ledger key.", next_step="`remit init` creates one.")
    file = TenantFile.read(root.path)
    if file is not None and file.ready:
        raise RemitError(f"The tenant {name} already exists.")
    if file is None:
        _require_not_removed(ledger, name)
        if recorded_key(ledger, name) is not None:
            raise RemitError(
                f"A tenant {name} was recorded, but its root {root.path} is missing.",
                next_step="Restore the root from a backup, or choose another name.",
            )
        if "://" in database or (not database and "://" in host.path):
            where = (database or HOST, schema_of(name))
        elif database:
            raise RemitError("The database of a tenant must be a postgresql:// URL.")
        else:
            where = ("", _LEDGER)
        origin = f"{ledger.verifier_key.name}/{TENANTS}/{name}"
        file = TenantFile(name, origin, *where, ready=False)
        root.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        save(file, TenantFile.path(root.path))
    Place(file, root, host.path).make(f"remit tenant {file.origin}")
    make_root(root, by=host.by, step=host.step)
    if recorded_key(ledger, name) is None:
        key = ledger_key(root, load_settings(root.config).settings.ledger).verifier_key()
        host.record(
            "TENANT_CREATED", name, f"Tenant {name} made", origin=file.origin,
            verifier_key=str(key), place=place_of(file),
        )  # fmt: skip
    file = dataclasses.replace(file, ready=True)
    save(file, TenantFile.path(root.path))
    return Tenant(root, file)


def recorded_key(ledger: LedgerClient, name: str) -> VerifierKey | None:
    """The verifier key of a tenant's log as the host put it on record; ``None`` where there is no
    such tenant."""
    for entry in ledger.query(event_type="TENANT_CREATED", submission_id=name, tier=None, limit=1):
        return VerifierKey.parse(entry.metadata["verifier_key"])
    return None


def require_recorded(ledger: LedgerClient, tenant: Tenant) -> VerifierKey:
    """Make sure that a tenant's key is the one that the host made it with; returns that.

    Args:
        ledger: of the host.
        tenant: whose root it is.

    Raises:
        RemitError: the host has no record of it, or of another key, or one of its removal.
        LedgerKeyError: the key's file is damaged, or of another log.
    """
    _require_not_removed(ledger, tenant.name)
    recorded = recorded_key(ledger, tenant.name)
    if recorded is None:
        raise RemitError(
            f"The host's ledger does not contain the tenant {tenant.name}.",
            next_step="A root copied there by hand is not a tenant.",
        )
    key = LedgerKey(tenant.root.keys, tenant.file.origin).verifier_key()
    if key is None or known_as(key, recorded.name) != recorded:
        raise RemitError(
            f"The key in {tenant.root.keys} is not the key that the tenant {tenant.name} was "
            "created with.",
            next_step="Keep a copy of these files, and restore the tenant's own keys from a "
            "backup.",
        )
    return recorded


def removals(ledger: LedgerClient) -> dict[str, LedgerEntry]:
    """The host's entries of tenants that were removed, by name."""
    return {str(entry.submission_id): entry for entry in ledger.query(event_type=REMOVED)}


def _require_not_removed(ledger: LedgerClient, name: str) -> None:
    for entry in ledger.query(event_type=REMOVED, submission_id=name, limit=1):
        raise RemitError(
            f"The tenant {name} was removed ({entry.id} of the host).",
            next_step="The name of a removed tenant cannot be used again; choose another name.",
        )


def open_log(
    tenant: Tenant, *, signing: bool = False, lock_timeout_s: float | None = None
) -> LedgerClient:
    """The ledger of a tenant.

    Args:
        tenant: whose.
        signing: with its private key.
        lock_timeout_s: wait this long for a database that does not answer, seconds; as its settings
            say when left out.

    Raises:
        LedgerError: it cannot be opened.
    """
    settings = load_settings(tenant.root.config).settings.ledger
    if lock_timeout_s is not None:
        settings = settings.model_copy(update={"lock_timeout_s": lock_timeout_s})
    return open_root_ledger(tenant.root, settings, signing=signing, checks=(check_state,))


def take_checkpoint(ledger: LedgerClient, tenant: Tenant, log: LedgerClient) -> str:
    """Have the host take the tenant's latest head; signed now, where ``log`` can sign.

    Returns:
        The id of the entry that took it, now or before; empty where the log has no head yet.

    Raises:
        LedgerError: it does not extend what was taken before.
        LedgerError: the host cannot be written, or the tenant's ledger not be read.
    """
    if log.checkpoints.signer is not None:
        signed: SignedCheckpoint | None = SignedCheckpoint.parse(log.checkpoint())
    else:
        signed = log.checkpoints.latest()
    if signed is None:
        return ""
    key = require_recorded(ledger, tenant)
    return take_head(ledger, tenant.name, log, signed, key=key)
