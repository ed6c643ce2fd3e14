"""Operations on the tenants of a host."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from remit.kernel.errors import NotFoundError, RemitError
from remit.kernel.words import count
from remit.operations import Caller, Column, Feed, Note, Operation, RootPort, feed_of, field

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


def _name() -> Any:
    return field("Name of the tenant.", flag="")


def _wait() -> Any:
    return field("Seconds to wait for calls of the tenant to end.", 60.0, least=0, flag="--wait")


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


class _Tenants(Operation):
    def writes(self, root: RootPort) -> bool:
        """Return True if an interrupted move or removal has to be recorded."""
        from remit.runtime.tenants import interrupted_tenants

        return self.changes or bool(interrupted_tenants(root.place))


class ListTenants(_Tenants):
    """List tenants by name, with the recorded size and the place of each ledger.

    Removed tenants are listed with the last head of their log.
    """

    command, route, summary, result = "tenant list", "GET /tenants", "List tenants", "TenantPage"
    member, endpoint = "tenants", "tenants"
    columns: ClassVar[tuple[Column, ...]] = ("name", "entries", "taken", "place", "origin")

    def run(self, root: RootPort, caller: Caller) -> Feed:
        """Return the tenants; over HTTP with the spending of the day, which each ledger is asked.

        An interrupted move or removal is undone or finished first if the caller is local.
        """
        from remit.runtime.tenants import list_names, listed_tenant

        place, ledger = root.place, root.ledger
        if caller.is_local:
            with _host(root, caller):
                pass

        def describe(names: list[str]) -> list[dict[str, Any]]:
            form: Callable[[ListedTenant], dict[str, Any]] = _row if caller.is_local else _shown
            with ThreadPoolExecutor(_CONCURRENT_OPENS) as threads:
                return list(
                    threads.map(lambda name: form(listed_tenant(place, ledger, name)), names)
                )

        return feed_of(list_names(place, ledger), str, describe)


class ShowTenant(Operation):
    """Return one tenant."""

    route, summary, result = "GET /tenants/{name}", "One tenant", "TenantShape"
    endpoint = "tenant"

    name: str = _name()

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the tenant.

        Raises:
            NotFoundError: no such tenant exists or existed.
        """
        from remit.runtime.tenants import list_names, listed_tenant

        if self.name not in list_names(root.place, root.ledger):
            raise NotFoundError("This tenant does not exist.")
        return _shown(listed_tenant(root.place, root.ledger, self.name))


class CreateTenant(_Tenants):
    """Make a tenant. A repetition completes an interrupted one."""

    command, changes = "tenant create", True

    name: str = _name()
    database: str = field(
        "PostgreSQL database of its ledger (default: the host's, or a file if the host's is one).",
        "", metavar="URL",
    )  # fmt: skip

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Make the tenant.

        Raises:
            RemitError: the name cannot be used, or the root or the ledger cannot be made.
        """
        from remit.runtime.tenants import create_tenant, recorded_key

        with _host(root, caller) as host:
            made = create_tenant(host, self.name, database=self.database)
            key = str(recorded_key(host.ledger, self.name))
        return {"name": self.name, "root": str(made.root.path), "origin": made.file.origin,
                "place": made.place, "verifier_key": key}  # fmt: skip

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the root and the key, and a note on the next command."""
        yield f"{found['name']}: {found['root']}"
        yield f"Key that verifies its log: {found['verifier_key']}"
        yield Note(f"Make its first key with `remit key create --root {found['root']} --name …`.")


class SignTenants(_Tenants):
    """Sign the heads of tenants (default: all) and record them in the host's ledger."""

    command, changes = "tenant checkpoint", True

    names: list[str] = field("Names of tenants.", [], flag="", metavar="[NAMES]...")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Sign the heads, and return the host's entries by tenant.

        Raises:
            RemitError: a tenant does not exist, or its ledger cannot be opened.
        """
        from remit.runtime.tenants import find_tenant, list_tenants, open_log, take_checkpoint

        taken = {}
        with _host(root, caller) as host:
            named = [find_tenant(host.root, name) for name in self.names]
            for one in named or list_tenants(host.root):
                with open_log(one, signing=True) as log:
                    taken[one.name] = take_checkpoint(host.ledger, one, log)
        return {"taken": taken}

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield each tenant with its entry."""
        return (f"{name}  {entry}" for name, entry in found["taken"].items())


class ProveThroughHost(_Tenants):
    """Prove from a head of the host that an entry is in a tenant's log."""

    command, changes, media_type = "tenant prove", True, "text/plain"

    name: str = _name()
    entry_id: str = field("Id of the entry.", flag="")
    out: Path | None = field("Write the proof to a file.", None)

    def run(self, root: RootPort, caller: Caller) -> str:
        """Return the proof; a head is recorded first if none covers the entry.

        Raises:
            RemitError: the tenant or the entry does not exist.
        """
        from remit.ledger import parse_entry_id
        from remit.ledger.log_of_logs import latest_head, prove_through
        from remit.runtime.tenants import take_checkpoint

        with _host(root, caller) as host, _log_of(host, self.name) as (one, log):
            log.read(self.entry_id, with_content=False)
            head = latest_head(host.ledger, self.name)
            if head is None or head.checkpoint.size <= (parse_entry_id(self.entry_id) or 0):
                take_checkpoint(host.ledger, one, log)
            return str(prove_through(host.ledger, self.name, log, self.entry_id))


class VerifyTenantProof(Operation):
    """Verify a proof of `remit tenant prove` with the host's key; no root is needed."""

    command = "tenant verify"
    prints = "verified: entry {index} of {origin}, by a checkpoint of {host}"

    proof: Path = field("File of the proof.", flag="", place="input")
    key: str = field("Verifier key of the host.", metavar="VKEY")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the place of the proved entry.

        Raises:
            TlogError: the proof or the key cannot be read, or the proof does not hold.
        """
        from remit.ledger.log_of_logs import TenantProof
        from remit.ledger.tlog import VerifierKey

        read = TenantProof.parse(self.proof.read_bytes())
        host, log = read.verify(VerifierKey.parse(self.key))
        return {"verified": True, "host": host.origin, "host_entries": host.size,
                "origin": log.origin, "entries": log.size, "index": read.proof.index}  # fmt: skip


class ExportTenant(_Tenants):
    """Export a tenant: ledger, key, a proof from the host, and its packages."""

    command, changes = "tenant export", True

    name: str = _name()
    directory: Path = field("Directory to create.", flag="--out", place="folder")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Write the export.

        Raises:
            RemitError: the tenant does not exist, or the directory cannot be made.
        """
        from remit.runtime.tenants import export_tenant

        with _host(root, caller) as host, _log_of(host, self.name) as (one, log):
            shown = root.progress("exporting")
            done = export_tenant(host.ledger, one, log, self.directory, shown)
        return {"out": str(self.directory), **done}

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the number of entries and packages."""
        entries, packages = count(found["entries"], "entry"), count(found["packages"], "package")
        yield f"{entries} and {packages} written to {found['out']}"


class MoveTenant(_Tenants):
    """Move a tenant's ledger: record, content, budgets, keys. Origin and key stay the same.

    A server closes the tenant, and takes its calls again after the move. The next `remit tenant`
    command or the server undoes or finishes an interrupted move. The old ledger stays next to its
    old place until `--remove-old` or `remit tenant clean`.
    """

    command, changes = "tenant move", True

    name: str = _name()
    to: str = field(
        "A PostgreSQL database, the host's own, or a directory for a file.", metavar="URL|host|DIR"
    )
    wait_s: float = _wait()
    remove_old: bool = field("Remove the old ledger afterwards.", False)

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Move the ledger.

        Raises:
            RemitError: the tenant does not exist, or the new place cannot be used.
        """
        from remit.runtime.tenants import move_tenant, remove_old_places

        with _host(root, caller) as host:
            moved, entries, aside = move_tenant(host, self.name, self.to, wait_s=self.wait_s)
            removed = remove_old_places(host, self.name) if self.remove_old else []
        return {"name": self.name, "entries": entries, "place": moved.place,
                "aside": "" if removed else aside, "removed": removed}  # fmt: skip

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the new place, and a note on the old one."""
        name, aside = found["name"], found["aside"]
        yield f"{name}: {count(found['entries'], 'entry')} at {found['place']}"
        if found["removed"]:
            yield Note(_REMAINING_COPIES)
        elif aside:
            yield Note(f"The old ledger, with its content, is now {aside}. When your backups hold "
                       f"a copy of the new one, `remit tenant clean {name}` removes the old "
                       "one.")  # fmt: skip


class CleanTenant(_Tenants):
    """Remove the old ledgers of a moved tenant with their content, and record that.

    An old ledger is removed only if the ledger in use verifies and contains all of its entries.
    """

    command, changes = "tenant clean", True

    name: str = _name()
    yes: bool = _yes("Do not ask for confirmation.")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Remove the old ledgers.

        Raises:
            RemitError: the tenant does not exist, or an old ledger must stay.
        """
        from remit.runtime.tenants import find_tenant, old_plans, place_of, remove_old_places

        with _host(root, caller) as host:
            plans = old_plans(find_tenant(host.root, self.name).root)
            if old := [place_of(plan.aside) for plan in plans]:
                caller.confirm(f"Remove {', '.join(old)}?")
            return {"name": self.name, "removed": remove_old_places(host, self.name)}

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the removed ledgers, and a note on copies of them."""
        yield from (f"removed: {one}" for one in found["removed"])
        yield (Note(_REMAINING_COPIES) if found["removed"]
               else f"{found['name']} has no old ledger.")  # fmt: skip


class RemoveTenant(_Tenants):
    """Remove a tenant permanently: ledger, content, keys, packages and root.

    The host's ledger keeps the last signed head of its log, so that proofs and exports can still be
    verified. The name cannot be used again. The next `remit tenant` command or the server undoes an
    interrupted removal, or finishes it if the host has recorded it.
    """

    command, changes = "tenant remove", True

    name: str = _name()
    reason: str = field("Recorded permanently; do not name a person.")
    export: Path | None = field("Export the tenant to a new directory first.", None, place="folder")
    wait_s: float = _wait()
    yes: bool = _yes("Do not ask in a terminal.")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Remove the tenant; of a removed one, only return the record.

        Raises:
            RemitError: the tenant does not exist, or the export cannot be written.
        """
        from remit.runtime.tenants import find_tenant, remove_tenant, removed_before

        name, out = self.name, self.export
        with _host(root, caller) as host:
            done = removed_before(host, name)
            if done is None:
                find_tenant(host.root, name)
                caller.confirm(f"Remove the tenant {name} and all its data permanently?")
                done = remove_tenant(host, name, reason=self.reason, wait_s=self.wait_s, export=out)
        entries, taken, entry_id = done
        return {"name": name, "entries": entries, "taken": taken, "entry": entry_id,
                "export": str(out) if out else ""}  # fmt: skip

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the last head, and a note on copies."""
        yield (f"{found['name']} is removed: {count(found['entries'], 'entry')}; entry "
               f"{found['taken']} of the host holds the last head")  # fmt: skip
        yield Note(_REMAINING_COPIES)


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
