"""The tenants that are open: opened when first asked for, a bounded number, closed when idle."""

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
from remit.runtime import Runtime
from remit.runtime.tenants import find_tenant, hold_open, open_log, root_of
from remit.server.app import App
from remit.server.refusals import HttpError
from remit.server.shares import Shares
from remit.server.telemetry import CallMetrics
from remit.server.tenants.metrics import TenantMetrics
from remit.server.tenants.naming import Named

__all__ = ["OpenTenant", "OpenTenants"]

_log = logging.getLogger("remit.server.tenants")

_IDLE_S = 900.0
_AGAIN_S = 1.0  # Pause before a failed opening is repeated.
_THREADS = 8  # a tenant whose database does not answer holds one for some seconds
_MAX_WAITING = 200  # requests for tenants that are not open
_MOST_WAITING_FOR_ONE = 100
_T = TypeVar("_T")
_OF_KEY = "SELECT 1 FROM virtual_keys WHERE hash = ? OR old_hash = ?"


class OpenTenant:
    """An open tenant; a block with it keeps it open.

    Attributes:
        name: of the tenant.
        app: answers for it.
        held: keeps it from being moved.
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
        """Close it, once it is not used."""
        try:
            await self.app.stop(at_once=at_once)
        finally:
            self.held.close()


class OpenTenants:
    """Opens and closes tenants of one host.

    Args:
        host: its root.
        most: open at one time.
        flags: settings by dotted key, as the server was started with.
        by: who runs the server, for the record.
        shares: what all tenants hold of this process.
        admit: called before a tenant is opened; raises where it must not be.
        metrics: the host's, which count by tenant too.
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
        self._looking: dict[str, asyncio.Lock] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(_THREADS, "remit-tenants")
        self._waiting: Counter[str] = Counter()

    @property
    def all(self) -> Mapping[str, OpenTenant]:
        """The open tenants, keyed by name."""
        return self._open

    async def of(self, asked: Named) -> OpenTenant | None:
        """Return the tenant that a key or token names; ``None`` if there is none.

        A closed tenant is opened only for a key that may be its own; ``None`` for other keys. An
        open tenant's application refuses bad keys itself.

        Raises:
            HttpError: 503, the tenant cannot be opened at present.
        """
        if (found := self._open.get(asked.tenant)) is not None:
            return found
        if not self._is_one(asked.tenant):
            return None
        with self._place(asked.tenant):
            # Who has no key of it must not have it opened, or another closed for it.
            if not await self._asks_with_its_key(asked):
                return None
            return await self._opened(asked.tenant, may_close=True)

    async def of_visitor(self, name: str, *, is_known: bool) -> OpenTenant | None:
        """The tenant whose console is asked for.

        Args:
            name: as it was given.
            is_known: whether a login of it was shown: else no other is closed for it.

        Raises:
            HttpError: as :meth:`of`.
        """
        if (found := self._open.get(name)) is not None:
            return found
        if not self._is_one(name):
            return None
        with self._place(name):
            return await self._opened(name, may_close=is_known)

    async def close_idle(self) -> None:
        """Close tenants that are idle, are to be moved or removed, or have a new policy or prices.

        The next request opens a tenant with a new policy or prices again.
        """
        await asyncio.gather(*(self._look_at(name, one) for name, one in self._open.items()))

    async def _look_at(self, name: str, one: OpenTenant) -> None:
        idle = not one.users and time.monotonic() - one.used > _IDLE_S
        idle = idle or TenantFile.is_held_back(one.app.runtime.root.path)
        behind = False
        with contextlib.suppress(RemitError):  # a ledger that does not answer is asked again
            behind = not idle and await self.run(one.app.is_behind)
        if (idle or behind) and self._open.get(name) is one:
            self._close(name)

    def end_streams(self) -> None:
        """End live pages of all consoles."""
        for one in self._open.values():
            one.app.end_streams()

    async def stop(self, *, at_once: bool) -> None:
        """Close all, once no request of them is answered any more."""
        for task in self._opening.values():
            with contextlib.suppress(Exception):
                await task
        stopping = [one.stop(at_once=at_once) for one in self._open.values()]
        self._open = {}
        await asyncio.gather(*stopping, *self._closing)
        self._threads.shutdown(wait=False)

    async def run(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run something in one of the threads for tenants."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def _is_one(self, name: str) -> bool:
        """Return True if the tenant exists; a flood of false names costs one file check each."""
        return is_name(name) and TenantFile.path(root_of(self._host, name).path).exists()

    async def _asks_with_its_key(self, asked: Named) -> bool:
        """:meth:`_knows`, by one thread for each tenant: whose database does not answer must not
        hold all of them."""
        name = asked.tenant
        async with self._looking.setdefault(name, asyncio.Lock()):
            if name in self._open:
                return True  # its application sees to the key
            self._refuse_failed(name)
            try:
                return await self.run(self._knows, asked)
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

    def _knows(self, asked: Named) -> bool:
        """Whether a tenant that is not open has this key, now or once; reads its ledger."""
        if TenantFile.is_held_back(root_of(self._host, asked.tenant).path):
            self._admit(asked.tenant)
        tenant = find_tenant(self._host, asked.tenant)
        if asked.token.startswith("rat1."):
            try:
                AgentTokens(agent_secret(tenant.root)).verify(asked.token)
            except AuthenticationError:
                return False
            return True
        digest = hashlib.sha256(asked.token.encode("ascii")).hexdigest()
        with open_log(tenant) as log:
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
                runtime.gateway.observers.append(self._metrics.by_tenant().of(name))
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
                    f"All {self._most} tenants that this server may hold open are in "
                    f"use; try again."
                )
                raise HttpError(503, "overloaded", said, retry_after_s=1)
            self._close(min(idle, key=lambda name: self._open[name].used))

    def _close(self, name: str) -> None:
        """Take a tenant out, and close it once it is not used."""
        one = self._open.pop(name)

        async def close() -> None:
            one.app.end_streams()
            while one.users:  # noqa: ASYNC110 - its requests go on
                await asyncio.sleep(0.05)
            await one.stop(at_once=False)

        task = asyncio.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    @contextlib.contextmanager
    def _place(self, name: str) -> Iterator[None]:
        of_one, of_all = self._waiting[name], self._waiting.total()
        if of_all >= _MAX_WAITING or of_one >= _MOST_WAITING_FOR_ONE:
            said = f"Too many requests ({of_all}) wait for tenants to be opened; try again."
            raise HttpError(503, "overloaded", said, retry_after_s=1)
        self._waiting[name] += 1
        try:
            yield
        finally:
            self._waiting[name] -= 1


def unavailable(error: Exception) -> HttpError:
    """The answer to callers of a tenant that cannot be opened; the log says why."""
    said = "This tenant cannot be served just now; try again, or see the server's log."
    return HttpError(503, "tenant_unavailable", said, retry_after_s=1)
