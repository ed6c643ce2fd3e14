"""Operations on the tenants of a host."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import NotFoundError, RemitError
from remit.operations import (
    Caller,
    Feed,
    RootPort,
    feed_of,
    field,
    verb,
)
from remit.operations.files import archives

if TYPE_CHECKING:
    from remit.ledger import LedgerClient
    from remit.runtime.tenants import ListedTenant, Tenant, TenantHost

_CONCURRENT_OPENS = 8
_WAIT_S = 2.0  # Wait this long for a tenant's database.
_NOT_READ = {"entries": None, "spent_today_usd": None}
_REMAINING_COPIES = (
    "Copies may remain where Remit cannot delete them: in backups, snapshots and exports, in the "
    "database's write-ahead log, and in free blocks of the disk until they are overwritten."
)


_NAME: Any = field("Name of the tenant.", flag="")


_WAIT: Any = field("Seconds to wait for calls of the tenant to end.", 60.0, least=0, flag="--wait")


def _yes(text: str) -> Any:
    return field(text, False)


@contextmanager
def _host(root: RootPort, caller: Caller) -> Iterator[TenantHost]:
    """Yield the host; undo or finish interrupted moves and removals first."""
    from remit.runtime.tenants import TenantHost, interrupted_tenants, recover_tenants

    place = root.settings.ledger.path
    host = TenantHost(root.place, root.ledger, place, caller.name, root.step)
    if interrupted_tenants(root.place):
        failed = recover_tenants(replace(host, by="recovery", step=lambda _: None))
        for name, error in failed.items():
            root.note(f"The tenant {name} cannot be recovered: {error.message}")
    yield host


@contextmanager
def _log_of(host: TenantHost, name: str) -> Iterator[tuple[Tenant, LedgerClient]]:
    from remit.runtime.tenants import find_tenant, open_log

    one = find_tenant(host.root, name)
    with open_log(one, signing=True) as log:
        yield one, log


def _is_interrupted(root: RootPort) -> bool:
    """Return True if an interrupted move or removal has to be recorded."""
    from remit.runtime.tenants import interrupted_tenants

    return bool(interrupted_tenants(root.place))


@verb(
    "tenant list", "GET /tenants", summary="List tenants", result="TenantPage", member="tenants",
    endpoint="tenants", writes=_is_interrupted,
    nothing="No tenants. `remit tenant create` creates one.",
    columns=("name", "entries", ("recorded", lambda one: one["taken"]), "place", "origin"),
)  # fmt: skip
def list_tenants(root: RootPort, caller: Caller) -> Feed:
    """List tenants by name, with the recorded size and the place of each ledger.

    Removed tenants are listed with the last head of their log.

    Returns:
        The tenants; for HTTP in the form ``TenantShape``. The command first recovers interrupted
        moves and removals; a tenant that cannot be recovered is listed all the same.
    """
    from remit.runtime.tenants import list_names, listed_tenant

    place, ledger = root.place, root.ledger
    if caller.is_local:  # Over HTTP, a server has recovered the tenants.
        with _host(root, caller):
            pass

    def describe(names: list[str]) -> list[dict[str, Any]]:
        form: Callable[[ListedTenant], dict[str, Any]] = _row if caller.is_local else _shown
        with ThreadPoolExecutor(_CONCURRENT_OPENS) as threads:
            return list(threads.map(lambda name: form(listed_tenant(place, ledger, name)), names))

    return feed_of(list_names(place, ledger), str, describe)


@verb(
    route="GET /tenants/{name}", summary="One tenant", result="TenantShape", endpoint="tenant",
)  # fmt: skip
def show_tenant(root: RootPort, caller: Caller, *, name: str = _NAME) -> dict[str, Any]:
    """Return one tenant.

    Returns:
        The tenant in the form ``TenantShape``. ``entries`` and ``spent_today_usd`` are None unless
        it is served and its ledger answers in two seconds. ``head`` and ``removed`` are None if the
        host recorded none.

    Raises:
        NotFoundError: no such tenant exists or existed.
    """
    from remit.runtime.tenants import list_names, listed_tenant

    if name not in list_names(root.place, root.ledger):
        raise NotFoundError("This tenant does not exist.")
    return _shown(listed_tenant(root.place, root.ledger, name))


@verb(
    "tenant create", changes=True,
    then="Create its first key with `remit key create --root {root} --name …`.",
)  # fmt: skip
def create_tenant(
    root: RootPort, caller: Caller, *,
    name: str = _NAME,
    database: str = field(
        "PostgreSQL database of its ledger (default: the host's, or a file if the host's is one).",
        "", metavar="URL",
    ),
) -> dict[str, Any]:  # fmt: skip
    """Create a tenant. A repetition completes an interrupted one.

    Returns:
        ``name``, ``root`` (a path), ``origin`` of its log, ``place`` of its ledger, and
        ``verifier_key``.

    Raises:
        RemitError: the name is taken, invalid or of a removed tenant; the host is itself a tenant
            or has no ledger key; ``database`` is no PostgreSQL URL (ignored by a repetition); or
            the root or the ledger cannot be made.
    """
    from remit.runtime import tenants

    with _host(root, caller) as host:
        made = tenants.create_tenant(host, name, database=database)
        key = str(tenants.recorded_key(host.ledger, name))
    return {"name": name, "root": str(made.root.path), "origin": made.file.origin,
            "place": made.place, "verifier_key": key}  # fmt: skip


@verb("tenant checkpoint", changes=True)
def sign_tenants(
    root: RootPort, caller: Caller, *,
    names: list[str] = field("Names of tenants.", [], flag="", metavar="[NAMES]..."),
) -> dict[str, Any]:  # fmt: skip
    """Sign the heads of tenants (default: all) and record them in the host's ledger.

    A head that is recorded already is not recorded again. Without names, incomplete tenants are
    left out.

    Returns:
        ``taken``: by name, the id of the host's entry with the head; empty for an empty log.

    Raises:
        RemitError: a tenant does not exist, and nothing was recorded; or its key is not the
            recorded one. The heads before it stay recorded, also after a LedgerError.
        LedgerError: a ledger cannot be opened, or a head does not extend the one recorded before.
    """
    from remit.runtime import tenants

    taken = {}
    with _host(root, caller) as host:
        named = [tenants.find_tenant(host.root, name) for name in names]
        for one in named or tenants.list_tenants(host.root):
            with tenants.open_log(one, signing=True) as log:
                taken[one.name] = tenants.take_checkpoint(host.ledger, one, log)
    return {"taken": taken}


@verb("tenant prove", changes=True, media_type="text/plain")
def prove_through_host(
    root: RootPort, caller: Caller, *,
    name: str = _NAME,
    entry_id: str = field("Id of the entry.", flag=""),
    out: Path | None = field("Write the proof to a file.", None),
    archives: list[Path] = archives(),
) -> str:  # fmt: skip
    """Prove from a head of the host that an entry is in a tenant's log.

    Returns:
        The text of the proof. If no recorded head covers the entry, a new head is signed and
        recorded first.

    Raises:
        RemitError: the tenant or the entry does not exist, the entry is in a segment outside
            ``archives``, or a new head cannot be signed or recorded.
    """
    from remit.ledger import parse_entry_id
    from remit.ledger.log_of_logs import latest_head, prove_through
    from remit.runtime.tenants import take_checkpoint

    with _host(root, caller) as host, _log_of(host, name) as (one, log):
        if archives:
            log.attach(archives)
        log.read(entry_id, with_content=False)
        head = latest_head(host.ledger, name)
        if head is None or head.checkpoint.size <= (parse_entry_id(entry_id) or 0):
            take_checkpoint(host.ledger, one, log)
        return str(prove_through(host.ledger, name, log, entry_id))


@verb("tenant verify", prints="verified: entry {index} of {origin}, by a checkpoint of {host}")
def verify_tenant_proof(
    root: RootPort, caller: Caller, *,
    proof: Path = field("File of the proof.", flag="", place="input"),
    key: str = field("Verifier key of the host.", metavar="VKEY"),
) -> dict[str, Any]:  # fmt: skip
    """Verify a proof of `remit tenant prove` with the host's key. No root is needed.

    Returns:
        ``verified``, which is True; ``host`` and ``origin``, the names of the host's log and the
        tenant's; ``host_entries`` and ``entries``, their sizes; ``index``, the number of the proven
        entry in the tenant's log.

    Raises:
        OSError: the file cannot be read.
        TlogError: the proof or the key cannot be read, or the proof does not hold.
    """
    from remit.ledger.log_of_logs import TenantProof
    from remit.ledger.tlog import VerifierKey

    read = TenantProof.parse(proof.read_bytes())
    host, log = read.verify(VerifierKey.parse(key))
    return {"verified": True, "host": host.origin, "host_entries": host.size,
            "origin": log.origin, "entries": log.size, "index": read.proof.index}  # fmt: skip


@verb("tenant export", changes=True)
def export_tenant(
    root: RootPort, caller: Caller, *,
    name: str = _NAME,
    directory: Path = field("Directory to create.", flag="--out", place="folder"),
) -> dict[str, Any]:  # fmt: skip
    """Export a tenant: ledger, key, a proof from the host, and its packages.

    The host records the latest head first. The key is the verifier key; private keys are not
    exported. Files that were written before an error stay.

    Returns:
        ``out``, the directory, and the numbers of ``entries`` and ``packages``.

    Raises:
        RemitError: the tenant does not exist, its key is not the recorded one, or the directory is
            not empty or cannot be written.
        LedgerError: a ledger cannot be opened, or the head cannot be signed or recorded.
    """
    from remit.runtime import tenants

    with _host(root, caller) as host, _log_of(host, name) as (one, log):
        shown = root.progress("exporting")
        done = tenants.export_tenant(host.ledger, one, log, directory, shown)
    return {"out": str(directory), **done}


@verb(
    "tenant move", changes=True,
    then="When your backups hold a copy of the new ledger, `remit tenant clean {name}` removes the "
    "old one.",
)  # fmt: skip
def move_tenant(
    root: RootPort, caller: Caller, *,
    name: str = _NAME,
    to: str = field(
        "A PostgreSQL database, the host's own, or a directory for a file.", metavar="URL|host|DIR"
    ),
    wait_s: float = _WAIT,
    remove_old: bool = field("Remove the old ledger afterwards.", False),
) -> dict[str, Any]:  # fmt: skip
    """Move a tenant's ledger: record, content, budgets, keys. Origin and key stay the same.

    A server closes the tenant, and takes its calls again after the move. The next `remit tenant`
    command or the server undoes or finishes an interrupted move. The old ledger stays next to its
    old place until `--remove-old` or `remit tenant clean`. A ledger that is at the new place
    already stays as it is.

    Returns:
        ``name``, the number of ``entries``, the new ``place``, ``aside`` (the place of the old
        ledger; empty if there is none or it was removed), and the list of ``removed`` places.

    Raises:
        RemitError: the tenant does not exist, the new place exists or cannot be used, or a server
            still serves the tenant after ``wait_s`` seconds; the tenant then stays.
    """
    from remit.runtime import tenants

    with _host(root, caller) as host:
        moved, entries, aside = tenants.move_tenant(host, name, to, wait_s=wait_s)
        removed = tenants.remove_old_places(host, name) if remove_old else []
    return {"name": name, "entries": entries, "place": moved.place,
            "aside": "" if removed else aside, "removed": removed}  # fmt: skip


@verb("tenant clean", changes=True, then=_REMAINING_COPIES)
def clean_tenant(
    root: RootPort, caller: Caller, *,
    name: str = _NAME,
    yes: bool = _yes("Do not ask for confirmation."),
) -> dict[str, Any]:  # fmt: skip
    """Remove the old ledgers of a moved tenant with their content, and record that.

    An old ledger is removed only if the ledger in use verifies and contains all of its entries. If
    one must stay, none is removed. A declined confirmation aborts the command.

    Returns:
        ``name``, and ``removed``: the removed places; empty if the tenant has no old ledger.

    Raises:
        RemitError: the tenant does not exist, or an old ledger must stay.
    """
    from remit.runtime.tenants import find_tenant, old_plans, place_of, remove_old_places

    with _host(root, caller) as host:
        plans = old_plans(find_tenant(host.root, name).root)
        if old := [place_of(plan.aside) for plan in plans]:
            caller.confirm(f"Remove {', '.join(old)}?")
        return {"name": name, "removed": remove_old_places(host, name)}


@verb("tenant remove", changes=True, then=_REMAINING_COPIES)
def remove_tenant(
    root: RootPort, caller: Caller, *,
    name: str = _NAME,
    reason: str = field("Recorded permanently; do not name a person."),
    export: Path | None = field("Export the tenant to a new directory first.", None,
                                place="folder"),
    wait_s: float = _WAIT,
    yes: bool = _yes("Do not ask for confirmation."),
) -> dict[str, Any]:  # fmt: skip
    """Remove a tenant permanently: ledger, content, keys, packages and root.

    The host's ledger keeps the last signed head of its log, so that proofs and exports can still be
    verified. The name cannot be used again. The next `remit tenant` command or the server undoes an
    interrupted removal, or finishes it if the host has recorded it. A declined confirmation aborts
    the command.

    Returns:
        ``name``, the number of ``entries``, ``taken`` and ``entry`` (the host's entries with the
        last head and with the removal), and ``export`` (empty without one). A removal that was
        recorded before is finished without a confirmation, and no export is written.

    Raises:
        InvalidInputError: the reason is empty.
        RemitError: the tenant does not exist, a server still serves it after ``wait_s`` seconds, or
            the export cannot be written; the tenant then stays.
    """
    from remit.runtime import tenants

    with _host(root, caller) as host:
        done = tenants.removed_before(host, name)
        if done is None:
            tenants.find_tenant(host.root, name)
            caller.confirm(f"Remove the tenant {name} and all its data permanently?")
            done = tenants.remove_tenant(host, name, reason=reason, wait_s=wait_s, export=export)
    entries, taken, entry_id = done
    return {"name": name, "entries": entries, "taken": taken, "entry": entry_id,
            "export": str(export) if export else ""}  # fmt: skip


def _row(one: ListedTenant) -> dict[str, Any]:
    """Return a tenant as the command lists it."""
    return {
        "name": one.name,
        "entries": one.head.checkpoint.size if one.head else 0,
        "taken": one.head.entry_id if one.head else "",
        "place": one.place or one.state,
        "origin": one.origin,
        "root": str(one.tenant.root.path) if one.tenant else "",
        "state": one.state,
        "old_places": one.old_places,
        "removed": one.removal.timestamp if one.removal else "",
        "reason": one.removal.reason if one.removal else "",
    }


def _shown(one: ListedTenant) -> dict[str, Any]:
    """Return a tenant in the form ``TenantShape``."""
    head, removal = one.head, one.removal
    of_log = _of_log(one.tenant) if one.tenant and one.state == "served" else _NOT_READ
    return {
        **{name: getattr(one, name) for name in ("name", "state", "origin", "place", "old_places")},
        **of_log,
        "head": head and {
            "entries": head.checkpoint.size,
            "root": base64.b64encode(head.checkpoint.root).decode(),
            "entry": head.entry_id,
            "taken": head.taken,
        },
        "removed": removal and {"entry": removal.id, "at": removal.timestamp,
                                "reason": removal.reason, "by": removal.metadata["by"]},
    }  # fmt: skip


def _of_log(tenant: Tenant) -> dict[str, Any]:
    """Return size and spending from a tenant's own ledger; None for both if it does not answer."""
    from datetime import UTC, datetime

    from remit.gateway.budget import usd_of
    from remit.runtime.tenants import open_log
    from remit.views import read_usage

    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        with open_log(tenant, lock_timeout_s=_WAIT_S) as log:
            spent = read_usage(log, since=today).rows[0].nano
            return {"entries": log.count(), "spent_today_usd": usd_of(spent)}
    except (RemitError, OSError):
        return _NOT_READ
