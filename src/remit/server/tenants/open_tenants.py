"""The open tenants of a server: opened on demand, limited in number, closed when idle."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from remit.gateway.auth import AgentTokens, AuthenticationError, agent_secret
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.tenant import TenantFile, is_name
from remit.ledger import LedgerClient
from remit.ledger.log_of_logs import latest_head
from remit.runtime import Runtime
from remit.runtime.tenants import (
    find_tenant,
    hold_open,
    open_log,
    root_of,
    take_checkpoint,
    tenant_names,
)
from remit.server.app import App
from remit.server.in_flight_limits import Shares
from remit.server.refusals import HttpError
from remit.server.telemetry import CallMetrics
from remit.server.tenants.metrics import TenantMetrics

_log = logging.getLogger("remit.server.tenants")

_IDLE_S = 900.0
_AGAIN_S = 1.0  # Pause before a failed opening is repeated.
_THREADS = 8  # A database that does not answer occupies one of them for some seconds.
_MAX_WAITING = 200  # Requests for tenants that are not open.
_MAX_WAITING_OF_TENANT = 100
_T = TypeVar("_T")
_OF_KEY = "SELECT 1 FROM virtual_keys WHERE hash = ? OR old_hash = ?"


class OpenTenant:
    """An open tenant, which a ``with`` block keeps open.

    Blocks of several requests may overlap. :class:`OpenTenants` calls :meth:`stop` when no block is
    open; the object cannot be used afterwards.

    Args:
        name: name of the tenant.
        app: its application.
        held: locks that are released by :meth:`stop`.

    Attributes:
        name: name of the tenant.
        app: its application.
        held: locks that keep it from being moved or removed.
        users: number of requests that use it.
        used: end of the last use, by the monotonic clock.
    """

    def __init__(self, name: str, app: App, held: contextlib.ExitStack) -> None:
        self.name = name
        self.held = held
        self.app = app
        self.users = 0
        self.used = time.monotonic()

    def __enter__(self) -> Self:
        self.users += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.users -= 1
        self.used = time.monotonic()

    async def stop(self, *, at_once: bool) -> None:
        """Stop its application, as :meth:`App.stop`, and release its locks in any case.

        Args:
            at_once: cancel background responses; else wait for them.
        """
        try:
            await self.app.stop(at_once=at_once)
        finally:
            self.held.close()


class OpenTenants:
    """The tenants of a host that are open in this process.

    :meth:`of` and :meth:`of_visitor` return a tenant and open it if needed; the caller uses it in a
    ``with`` block. Two requests for a closed tenant open it once. At most ``most`` tenants are
    open: the one that was not used for the longest time is closed to make room. After a failure,
    the tenant is refused for a second. At most 200 requests wait for tenants, 100 for any one of
    them. Ledgers are opened and read in eight threads; the methods belong to one event loop, except
    :meth:`take_heads`, which blocks.

    Args:
        host: root of the host.
        most: largest number of open tenants.
        flags: settings, keyed by dotted name, with which the server was started.
        by: the user who runs the server, for the record.
        shares: shares of all tenants of this process.
        admit: called before a tenant is opened; raises RemitError to refuse it.
        metrics: the host's, which also count by tenant.
    """

    def __init__(
        self, host: Root, most: int, flags: Mapping[str, Any], by: str, shares: Shares,
        admit: Callable[[str], None], metrics: CallMetrics,
    ) -> None:  # fmt: skip
        self._admit = admit
        self._host = host
        self._most = most
        self._flags = dict(flags)
        self._by = by
        self._shares = shares
        self._metrics = metrics
        self._open: dict[str, OpenTenant] = {}
        self._opening: dict[str, asyncio.Task[OpenTenant]] = {}
        self._failed: dict[str, tuple[float, Exception]] = {}
        self._reading: dict[str, asyncio.Lock] = {}
        self._seen_heads: dict[str, bytes] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(_THREADS, "remit-tenants")
        self._waiting: Counter[str] = Counter()

    @property
    def all(self) -> Mapping[str, OpenTenant]:
        """The open tenants of this process, keyed by name.

        The mapping changes as tenants are opened and closed.
        """
        return self._open

    async def of(self, name: str, token: str) -> OpenTenant | None:
        """Return the tenant that a request names; open it if its key may be the tenant's.

        An open tenant is returned for any key: its application refuses bad keys itself. To make
        room, the longest unused tenant may be closed. Enter the result in a ``with`` block at once;
        else it may be closed.

        Args:
            name: name of the tenant, as sent.
            token: key or agent's token, as sent.

        Returns:
            ``None`` if there is no such tenant, or if it is closed and has no such key.

        Raises:
            HttpError: 503, the tenant cannot be opened at present, or too many requests wait.
        """
        if (found := self._open.get(name)) is not None:
            return found
        if not self._exists(name):
            return None
        with self._place(name):
            # A caller without a key of the tenant must not cause another tenant to be closed.
            if not await self._has_key(name, token):
                return None
            return await self._opened(name, may_close=True)

    async def of_visitor(self, name: str, *, is_known: bool) -> OpenTenant | None:
        """Return the tenant whose console is requested; ``None`` if there is no such tenant.

        Args:
            name: name of the tenant, as sent.
            is_known: True if the browser showed a login of the tenant: then an idle tenant may be
                closed to make room.

        Raises:
            HttpError: as :meth:`of`.
        """
        if (found := self._open.get(name)) is not None:
            return found
        if not self._exists(name):
            return None
        with self._place(name):
            return await self._opened(name, may_close=is_known)

    async def close_idle(self) -> None:
        """Close tenants that are idle, moved, removed, or have a new policy or new prices.

        A tenant is idle after fifteen minutes without requests. It gets no new request, and its
        requests in flight end first: this method does not wait for them. The next request opens a
        tenant again. A tenant whose ledger cannot be read stays open.
        """
        await asyncio.gather(
            *(self._close_if_unused(name, one) for name, one in self._open.items())
        )

    async def _close_if_unused(self, name: str, one: OpenTenant) -> None:
        idle = not one.users and time.monotonic() - one.used > _IDLE_S
        idle = idle or TenantFile.is_held_back(one.app.runtime.root.path)
        behind = False
        with contextlib.suppress(RemitError):  # A ledger that does not answer is read again later.
            behind = not idle and await self.run(one.app.is_behind)
        if (idle or behind) and self._open.get(name) is one:
            self._close(name)

    def end_streams(self) -> None:
        """End the live pages of all consoles; later ones of these tenants end at once too.

        The tenants stay open. Call this in the event loop.
        """
        for one in self._open.values():
            one.app.end_streams()

    async def stop(self, *, at_once: bool) -> None:
        """Stop all tenants and the threads; no request of a tenant may be in flight any more.

        Args:
            at_once: cancel background responses; else wait for them.
        """
        for task in self._opening.values():
            with contextlib.suppress(Exception):
                await task
        stopping = [one.stop(at_once=at_once) for one in self._open.values()]
        self._open = {}
        await asyncio.gather(*stopping, *self._closing)
        self._threads.shutdown(wait=False)

    async def run(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run a function in a thread for tenants, and return the result.

        An error of the function is raised unchanged.

        Args:
            work: the function, which may block.
            arguments: its positional arguments.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def take_heads(self, ledger: LedgerClient) -> None:
        """Record new heads of all tenants' logs in the host's ledger; log what fails. Blocks.

        A tenant without a new head costs the reading of one file. A head that cannot be recorded is
        tried again when it changes.

        Args:
            ledger: ledger of the host, opened with its key.
        """
        try:
            for name in tenant_names(self._host):
                try:
                    head = (root_of(self._host, name).keys / "ledger.head").read_bytes()
                except OSError:
                    continue  # Nothing was signed yet.
                if self._seen_heads.get(name) != head:
                    self._take_head(ledger, name, head)
        except RemitError as error:
            _log.warning("the heads of tenants cannot be recorded: %s", error.message)

    def _take_head(self, ledger: LedgerClient, name: str, head: bytes) -> None:
        try:
            known = latest_head(ledger, name)
            if known is None or str(known.signed).encode() != head:
                tenant = find_tenant(self._host, name)
                with open_log(tenant) as log:
                    take_checkpoint(ledger, tenant, log)
        except RemitError as error:
            _log.error("the head of the tenant %s cannot be recorded: %s", name, error)
        self._seen_heads[name] = head

    def _exists(self, name: str) -> bool:
        """Return True if the tenant exists; a flood of false names costs one file check each."""
        return is_name(name) and TenantFile.path(root_of(self._host, name).path).exists()

    async def _has_key(self, name: str, token: str) -> bool:
        """Return True if a key or token may be a tenant's, or if the tenant is open by now.

        One thread at a time reads a tenant's ledger, so that a database that does not answer
        cannot occupy all threads.

        Raises:
            HttpError: 503, the ledger cannot be read, or could not a moment ago.
        """
        async with self._reading.setdefault(name, asyncio.Lock()):
            if name in self._open:
                return True  # The tenant's application checks the key.
            self._refuse_failed(name)
            try:
                return await self.run(self._knows, name, token)
            except (RemitError, OSError) as error:
                self._has_failed(name, error)
                raise unavailable(error) from error

    def _has_failed(self, name: str, error: Exception) -> None:
        _log.error("the tenant %s cannot be opened: %s", name, error)
        self._failed[name] = (time.monotonic() + _AGAIN_S, error)

    def _refuse_failed(self, name: str) -> None:
        until, error = self._failed.get(name, (0.0, None))
        if error is not None and time.monotonic() < until:
            raise unavailable(error)

    def _knows(self, name: str, token: str) -> bool:
        """Return True if a closed tenant has, or had, this key; reads its ledger."""
        if TenantFile.is_held_back(root_of(self._host, name).path):
            self._admit(name)
        tenant = find_tenant(self._host, name)
        digest = hashlib.sha256(token.encode("ascii")).hexdigest()
        with open_log(tenant) as log:
            if token.startswith("rat1."):
                tokens = AgentTokens(agent_secret(tenant.root), lambda: log.wall_ms / 1000)
                try:
                    tokens.verify(token)
                except AuthenticationError:
                    return False
                return True
            return bool(log.select(_OF_KEY, (digest, digest)))

    async def _opened(self, name: str, *, may_close: bool) -> OpenTenant:
        while (found := self._open.get(name)) is None:  # The tenant may be closed again at once.
            self._refuse_failed(name)
            if name not in self._opening:
                self._make_room(may_close=may_close)
                task = self._opening[name] = asyncio.create_task(self._make(name))
                task.add_done_callback(lambda _: self._opening.pop(name, None))
            try:
                await asyncio.shield(self._opening[name])
            except (RemitError, OSError) as error:
                raise unavailable(error) from error
        return found

    async def _make(self, name: str) -> OpenTenant:
        try:
            app, held = await self.run(self._make_app, name)
        except (RemitError, OSError) as error:
            self._has_failed(name, error)
            raise
        self._failed.pop(name, None)
        await app.start()
        made = self._open[name] = OpenTenant(name, app, held)
        return made

    def _make_app(self, name: str) -> tuple[App, contextlib.ExitStack]:
        self._admit(name)
        tenant = find_tenant(self._host, name)
        with contextlib.ExitStack() as held:
            held.enter_context(hold_open(tenant))
            runtime = Runtime.open(tenant.root.path, flags=self._flags, by=self._by)
            try:
                own = TenantMetrics(self._metrics, name) if self._metrics.shared else None
                app = App(runtime, metrics=own, within=(self._shares, name))
                runtime.gateway.observers.append(self._metrics.of_tenant(name))
            except BaseException:
                runtime.close()
                raise
            return app, held.pop_all()
        raise AssertionError("unreachable")

    def _make_room(self, *, may_close: bool) -> None:
        while len(self._open) + len(self._opening) >= self._most:
            idle = [name for name, one in self._open.items() if not one.users]
            if not may_close or not idle:
                said = (
                    f"All {self._most} tenants that this server may keep open are in "
                    f"use; try again."
                )
                raise HttpError(503, "overloaded", said, retry_after_s=1)
            self._close(min(idle, key=lambda name: self._open[name].used))

    def _close(self, name: str) -> None:
        """Remove a tenant from the open ones, and stop its application after the last request."""
        one = self._open.pop(name)

        async def close() -> None:
            one.app.end_streams()
            while one.users:  # noqa: ASYNC110 - its requests continue
                await asyncio.sleep(0.05)
            await one.stop(at_once=False)

        task = asyncio.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    @contextlib.contextmanager
    def _place(self, name: str) -> Iterator[None]:
        of_one, of_all = self._waiting[name], self._waiting.total()
        if of_all >= _MAX_WAITING or of_one >= _MAX_WAITING_OF_TENANT:
            said = f"Too many requests ({of_all}) wait for tenants to be opened; try again."
            raise HttpError(503, "overloaded", said, retry_after_s=1)
        self._waiting[name] += 1
        try:
            yield
        finally:
            self._waiting[name] -= 1


def unavailable(error: Exception) -> HttpError:
    """Return (not raise) the 503 for a tenant that cannot be opened; only the log states the
    reason.

    Args:
        error: the reason, which is not shown to the client.
    """
    said = "This tenant cannot be served now; try again, or see the server's log."
    return HttpError(503, "tenant_unavailable", said, retry_after_s=1)
