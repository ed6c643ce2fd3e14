"""Tenants of a host: each has a root of its own, with ledger, keys, budgets and packages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from remit.kernel.durable_files import fsync_tree, write_over
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.kernel.tenant import HOST, TENANTS, TenantFile, check_name, is_name
from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    LedgerKey,
    LedgerKeyError,
    Progress,
    entry_id,
    known_as,
    ledger_key,
    open_root_ledger,
)
from remit.ledger.log_of_logs import latest_head, prove_through, take_head
from remit.ledger.tlog import SignedCheckpoint, VerifierKey
from remit.runtime.installation import Step, make_root
from remit.runtime.state_tables import check_state
from remit.runtime.tenants.places import Place

REMOVED = "TENANT_REMOVED"
"""Event type of the host's entry about a removed tenant."""

_LEDGER = "ledger.db"


@dataclass(frozen=True, slots=True)
class TenantHost:
    """A host, opened by a process that changes its tenants.

    Immutable; the caller closes the ledger.

    Attributes:
        root: root of the host.
        ledger: ledger of the host, opened with its key.
        path: ``[ledger] path`` of the host.
        by: the person who acts, for the record.
        step: called with the name of each step before the step.
    """

    root: Root
    ledger: LedgerClient
    path: str
    by: str = "recovery"
    step: Step = lambda _: None

    def record(self, event: str, tenant: str, reason: str, *, once: str = "", **data: Any) -> str:
        """Write an entry about a tenant to the host's ledger; return its id.

        The entry is durable when this returns.

        Args:
            event: event type, whose last word is the decision.
            tenant: name of the tenant.
            reason: reason of the entry.
            once: a field of ``data``; if an entry with the same value of it exists, return that
                entry's id and write nothing. Empty to write always.
            data: fields of the metadata, in addition to tenant and person.

        Raises:
            LedgerError: the ledger cannot be read or written.
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

    Immutable; a move gives a new one.

    Attributes:
        root: root of the tenant, below the host's.
        file: content of the root's ``tenant.json``.
    """

    root: Root
    file: TenantFile

    @property
    def name(self) -> str:
        """The tenant's name: lower-case letters, digits and hyphens."""
        return self.file.name

    @property
    def place(self) -> str:
        """Place of its ledger for people: a path, schema or URL without passwords.

        No connection is made.
        """
        return place_of(self.file)


def place_of(file: TenantFile) -> str:
    """Return the place of a tenant's ledger as text for people, without passwords.

    That is the path as the record states it, perhaps relative to the tenant's root; ``schema NAME
    of the host's database``; or ``schema NAME of URL``.

    Args:
        file: record of the tenant.
    """
    if not file.database:
        return file.ledger
    if file.database == HOST:
        return f"schema {file.ledger} of the host's database"
    from remit.ledger import masked  # Loads PostgreSQL's driver.

    return f"schema {file.ledger} of {masked(file.database)}"


def root_of(host: Root, name: str) -> Root:
    """Return the root of a present or future tenant; its directory need not exist.

    Args:
        host: root of the host.
        name: name of the tenant.

    Raises:
        RemitError: the name is invalid.
    """
    return Root(host.path / TENANTS / check_name(name))


def tenant_names(host: Root) -> list[str]:
    """Return the names of present tenants, complete or not, in order; other folders are ignored.

    Args:
        host: root of the host.
    """
    return tenants_with(host, TenantFile.path)


def tenants_with(host: Root, file: Callable[[Path], Path]) -> list[str]:
    """Return the names of tenants that have a file directly in their root's directory, in order.

    Args:
        host: root of the host.
        file: returns the path of the file in a directory. It is called once, with the host's, and
            only the last part of the path is used.
    """
    found = (path.parent.name for path in (host.path / TENANTS).glob(f"*/{file(host.path).name}"))
    return sorted(name for name in found if is_name(name))


def find_tenant(host: Root, name: str) -> Tenant:
    """Return a tenant. Its ledger is not opened, and the host's record is not read.

    Args:
        host: root of the host.
        name: name of the tenant.

    Raises:
        RemitError: the name is invalid, there is no tenant of that name, its root is incomplete, or
            its file is damaged or another tenant's.
    """
    root = root_of(host, name)
    file = TenantFile.read(root.path)
    if file is None:
        raise RemitError(
            f"The tenant {name} does not exist.", next_step="`remit tenant list` lists the tenants."
        )
    if not file.ready:
        raise RemitError(
            f"The tenant {name} is incomplete.",
            next_step=f"`remit tenant create {name}` completes it.",
        )
    if file.name != name:
        raise RemitError(
            f"{TenantFile.path(root.path)} belongs to the tenant {file.name}.",
            next_step="Do not copy or rename the root of a tenant; restore its own file.",
        )
    return Tenant(root, file)


def list_tenants(host: Root) -> list[Tenant]:
    """Return all complete tenants, by name. Incomplete ones are left out.

    Their ledgers are not opened.

    Args:
        host: root of the host.

    Raises:
        RemitError: a tenant's file is damaged.
    """
    files = ((name, TenantFile.read(root_of(host, name).path)) for name in tenant_names(host))
    return [Tenant(root_of(host, name), file) for name, file in files if file and file.ready]


def schema_of(name: str) -> str:
    """Return the schema of a tenant's ledger in a PostgreSQL database; nothing is created.

    Args:
        name: a valid name of a tenant.
    """
    return f"remit_tenant_{name.replace('-', '_')}"


def create_tenant(host: TenantHost, name: str, *, database: str = "") -> Tenant:
    """Make a tenant, recorded in the host's ledger, or complete an interrupted creation.

    Args:
        host: the host.
        name: name of the tenant.
        database: URL of a PostgreSQL database for the tenant's ledger. If left out, the host's
            database; a file if the host's ledger is a file. Ignored when an interrupted creation is
            completed.

    Returns:
        The tenant, whose root has keys, ledger and packages.

    Raises:
        RemitError: the name is taken, invalid or belonged to a removed tenant; the host is itself a
            tenant; ``database`` is not a PostgreSQL URL; or the root or ledger cannot be made, in
            which case a repetition completes it.
        LedgerKeyError: the host has no ledger key.
        PackageError: a shipped package cannot be installed.
        LedgerError: a ledger cannot be made or written.
        OSError: a directory cannot be made.
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
                next_step="Restore a copy of the root from a backup, or choose another name.",
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
        save(asdict(file), TenantFile.path(root.path))
    Place(file, root, host.path).make(f"remit tenant {file.origin}")
    make_root(root, by=host.by, step=host.step)
    if recorded_key(ledger, name) is None:
        key = ledger_key(root, load_settings(root.config).settings.ledger).verifier_key()
        host.record(
            "TENANT_CREATED", name, f"Tenant {name} made", origin=file.origin,
            verifier_key=str(key), place=place_of(file),
        )  # fmt: skip
    file = replace(file, ready=True)
    save(asdict(file), TenantFile.path(root.path))
    return Tenant(root, file)


def recorded_key(ledger: LedgerClient, name: str) -> VerifierKey | None:
    """Return the recorded verifier key of a tenant's log; ``None`` if the host recorded none.

    The first ``TENANT_CREATED`` of the name counts.

    Args:
        ledger: ledger of the host.
        name: name of the tenant.

    Raises:
        TlogError: the recorded key is malformed.
        LedgerError: the ledger cannot be read.
    """
    for entry in ledger.query(event_type="TENANT_CREATED", submission_id=name, tier=None, limit=1):
        return VerifierKey.parse(entry.metadata["verifier_key"])
    return None


def require_recorded(ledger: LedgerClient, tenant: Tenant) -> VerifierKey:
    """Return the verifier key that the host recorded for a tenant, if it is the tenant's own.

    The file of the tenant's key is compared. Names of the key before a fork are accepted.

    Args:
        ledger: ledger of the host.
        tenant: the tenant.

    Raises:
        RemitError: the host recorded no such tenant, another key, or the tenant's removal; or the
            tenant has no key file.
        TlogError: the recorded key is malformed.
        LedgerKeyError: the file of the key is damaged, or belongs to another log.
        LedgerError: the host's ledger cannot be read.
    """
    _require_not_removed(ledger, tenant.name)
    recorded = recorded_key(ledger, tenant.name)
    if recorded is None:
        raise RemitError(
            f"The host's ledger records no tenant {tenant.name}.",
            next_step="A copied root is not a tenant; use `remit tenant create`.",
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
    """Return the host's ``TENANT_REMOVED`` entries, keyed by name of the tenant.

    Of several removals of a name, the last counts.

    Args:
        ledger: ledger of the host.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    return {str(entry.submission_id): entry for entry in ledger.query(event_type=REMOVED)}


def _require_not_removed(ledger: LedgerClient, name: str) -> None:
    for entry in ledger.query(event_type=REMOVED, submission_id=name, limit=1):
        raise RemitError(
            f"The tenant {name} was removed, by {entry.id} of the host.",
            next_step="The name of a removed tenant cannot be used again: choose another one.",
        )


def open_log(
    tenant: Tenant, *, signing: bool = False, lock_timeout_s: float | None = None
) -> LedgerClient:
    """Open the ledger of a tenant, which the caller closes.

    The ledger is refused if its owner is not the key in the tenant's root.

    Args:
        tenant: the tenant.
        signing: True to open it with its private key.
        lock_timeout_s: longest wait for a database that does not answer, in seconds; the configured
            one if ``None``.

    Raises:
        LedgerError: the ledger cannot be opened.
        RemitError: the tenant is being moved or removed, or its settings cannot be read.
    """
    settings = load_settings(tenant.root.config).settings.ledger
    if lock_timeout_s is not None:
        settings = settings.model_copy(update={"lock_timeout_s": lock_timeout_s})
    return open_root_ledger(tenant.root, settings, signing=signing, checks=(check_state,))


def take_checkpoint(ledger: LedgerClient, tenant: Tenant, log: LedgerClient) -> str:
    """Record a tenant's latest head in the host's ledger, unless recorded already.

    If ``log`` has its private key, a new head is signed first.

    Args:
        ledger: ledger of the host, opened with its key.
        tenant: the tenant.
        log: the tenant's ledger.

    Returns:
        The id of the entry that holds the head; empty if the log has no head yet.

    Raises:
        LedgerError: the head does not extend the one recorded before, or a ledger cannot be read or
            written.
        RemitError: as :func:`require_recorded`.
    """
    if log.checkpoints.signer is not None:
        signed: SignedCheckpoint | None = SignedCheckpoint.parse(log.checkpoint())
    else:
        signed = log.checkpoints.latest()
    if signed is None:
        return ""
    key = require_recorded(ledger, tenant)
    return take_head(ledger, tenant.name, log, signed, key=key)


def export_tenant(
    ledger: LedgerClient,
    tenant: Tenant,
    log: LedgerClient,
    directory: Path,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write a tenant's data to a directory, after the host has recorded the latest head.

    The files are ``ledger.jsonl``, the export of its ledger; ``key.vkey``, the key that verifies
    it; ``proof.json``, a proof of its last entry from a head of the host; and ``packages/``, the
    archives of installed packages with their signatures.

    Args:
        ledger: ledger of the host, opened with its key.
        tenant: the tenant.
        log: the tenant's ledger, opened with its key.
        directory: a new or empty directory.
        progress: called with the number of entries written and their total.

    Returns:
        The numbers of ``entries`` and ``packages``.

    Raises:
        RemitError: the directory is not empty or cannot be written, or a package's file leads out
            of the tenant's root; or an error of :func:`take_checkpoint`. Written files stay.
        LedgerError: an error of :func:`take_checkpoint` or of the export.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise RemitError(f"{directory} is not empty.", next_step="Name a new directory.")
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
                raise RemitError(f"{path} leads out of the tenant's root.")
            shutil.copyfile(path, packages / f"{path.parents[1].name}-{path.name}")
        fsync_tree(directory)  # After a removal this may be the only copy.
    except OSError as error:
        raise RemitError(
            f"The tenant cannot be written to {directory}: {error.strerror or error}.",
            next_step="Check the free space and the permissions.",
        ) from error
    return {"entries": entries, "packages": sum(p.name.endswith(".tar.gz") for p in found)}


def save(value: Mapping[str, Any], path: Path) -> None:
    """Write JSON to a file of a tenant's root, durably and atomically, readable by its owner only.

    An existing file is replaced only when the new content is on the disk.

    Args:
        value: the content, as JSON values.
        path: the file, which is replaced.

    Raises:
        RemitError: the file cannot be written.
    """
    try:  # The address of a database may contain a password.
        write_over(path, json.dumps(value, indent=1).encode() + b"\n", 0o600)
    except OSError as error:
        raise RemitError(f"{path} cannot be written: {error.strerror or error}.") from error
