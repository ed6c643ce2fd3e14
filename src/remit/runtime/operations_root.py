"""The root of operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from remit.operations import Caller, RootPort

if TYPE_CHECKING:
    from remit.agents import ApprovalQueue
    from remit.agents.queue import OrderQueue
    from remit.gateway.auth import Directory, KeyStore
    from remit.gateway.budget import TokenBudgeter
    from remit.kernel.root import Root
    from remit.kernel.settings import LoadedSettings
    from remit.learning.proposals import Governance
    from remit.ledger import LedgerClient
    from remit.packages import PackageManager, RootPrices
    from remit.packages.gates import GateContext
    from remit.routing import Router
    from remit.runtime.runtime import Runtime


# The parts import their rooms themselves, so that a command imports only the rooms that it uses.
def _keys(root: OpenRoot) -> KeyStore:
    from remit.gateway.auth import KeyStore

    return KeyStore(root.ledger)


def _budgeter(root: OpenRoot) -> TokenBudgeter:
    from remit.gateway.budget import TokenBudgeter

    return TokenBudgeter(root.ledger)


def _directory(root: OpenRoot) -> Directory:
    from remit.gateway.auth import Directory

    return Directory(root.ledger)


def _orders(root: OpenRoot) -> OrderQueue:
    from remit.agents.queue import OrderQueue

    return OrderQueue.of_root(root.ledger, root.settings)


def _approvals(root: OpenRoot) -> ApprovalQueue:
    from remit.agents import ApprovalQueue

    return ApprovalQueue(root.ledger, root.settings.approvals)


def _prices(root: OpenRoot) -> RootPrices:
    """Return the prices of the root; an interrupted change is finished or discarded first."""
    from remit.packages import PRICES_FILE, finish_prices, is_staged, prices_of

    place, settings = root.place, root.settings
    file = settings.budget.prices or PRICES_FILE
    if is_staged(place.path, file):
        wait_s = settings.packages.lock_timeout_s
        if entry_id := finish_prices(place.path, root.ledger, file, wait_s):
            root.note(f"The change recorded as {entry_id} was interrupted; it is complete now.")
        else:
            root.note("An interrupted change was not recorded; it was discarded.")
    return prices_of(place, settings.budget.prices)


_PARTS: dict[str, Callable[[OpenRoot], Any]] = {
    "_found": lambda root: root.find(),
    "place": lambda root: root._found[0],
    "loaded": lambda root: root._found[1],
    "settings": lambda root: root.loaded.settings,
    "ledger": lambda root: root.open_ledger(),
    "keys": _keys, "budgeter": _budgeter, "directory": _directory, "orders": _orders,
    "approvals": _approvals, "prices": _prices,
}  # fmt: skip


def _no_progress(label: str) -> Callable[[int, int], None]:
    return lambda done, total: None


class OpenRoot(RootPort):
    """The :class:`remit.operations.RootPort` of commands and servers; parts are made at first use.

    The parts are attributes: ``place``, ``loaded``, ``settings``, ``ledger``, ``keys``,
    ``budgeter``, ``directory``, ``orders``, ``approvals`` and ``prices``. An attribute raises the
    errors of opening its part; the next access tries again. As a context manager, an instance
    closes the approvals, keys and ledger that it made itself, and the runtime that :meth:`router`
    opened. None of them, nor the router, can be used afterwards. Given parts and a given runtime
    stay open. Access is not locked: use an instance in one thread.

    Args:
        find: returns the root and the settings in force.
        open_ledger: returns the ledger; called at the ledger's first use.
        progress: shows the progress of long work, as :meth:`RootPort.progress`.
        note: shows a message for people.
        step: shows the name of a step before the step.
        runtime: the open runtime; None if :meth:`router` opens one.
        parts: parts that exist already, by the name of their attribute.
    """

    find: Callable[[], tuple[Root, LoadedSettings]]
    open_ledger: Callable[[], LedgerClient]
    _found: tuple[Root, LoadedSettings]

    def __init__(
        self,
        find: Callable[[], tuple[Root, LoadedSettings]],
        open_ledger: Callable[[], LedgerClient],
        *,
        progress: Callable[[str], Callable[[int, int], None]] = _no_progress,
        note: Callable[[str], None] = lambda text: None,
        step: Callable[[str], None] = lambda name: None,
        runtime: Runtime | None = None,
        **parts: Any,
    ) -> None:
        self.find = find
        self.open_ledger = open_ledger
        self._given = parts
        self._runtime, self._closes_runtime = runtime, runtime is None
        vars(self).update(parts, progress=progress, note=note, step=step)

    def __getattr__(self, name: str) -> Any:
        if name not in _PARTS:
            raise AttributeError(name)
        vars(self)[name] = made = _PARTS[name](self)
        return made

    def packages(self, caller: Caller) -> PackageManager:
        """Return the manager of packages; an interrupted change is finished or undone first.

        Args:
            caller: the person who acts, for the record.

        Raises:
            LedgerError: the ledger cannot be read.
            PackageError: another process holds the lock of packages, or the change cannot be
                finished.
        """
        from remit.runtime.installation import package_manager

        manager = package_manager(
            self.place, self.ledger, self.loaded, by=caller.name, step=self.step
        )
        manager.recover()
        return manager

    def gate_context(self) -> GateContext:
        """Return the present state of the root that its gates check. No gate runs.

        The context's ledger is this object's, which the caller does not close.

        Raises:
            RemitError: the root or its settings cannot be used.
            LedgerError: the ledger cannot be opened.
        """
        from remit.runtime.installation import gate_context

        return gate_context(self.place, self.ledger, self.loaded)

    def router(self, caller: Caller) -> Router:
        """Return the router of the runtime.

        If no runtime was given, the first call opens one in the caller's name, which the end of
        this context manager closes.

        Args:
            caller: the person who acts, for the record.

        Raises:
            RemitError: the runtime cannot be opened.
        """
        from remit.runtime.runtime import Runtime

        if self._runtime is None:
            self._runtime = Runtime.open(self.path, by=caller.name)
        return self._runtime.router

    def governance(self, caller: Caller) -> Governance:
        """Return the object that decides on proposals in the caller's name.

        For a command (a local caller), an interrupted change of packages is finished or undone
        first, and the caller has the role ``admin``.

        Args:
            caller: the person who decides.

        Raises:
            LedgerError: the ledger cannot be read or written.
            PackageError: another process holds the lock of packages, or the change cannot be
                finished.
            OSError: the journal of packages cannot be read.
        """
        from remit.gateway.auth import Identity
        from remit.runtime.installation import governance, recover_packages

        identity = caller.identity
        if caller.is_local:
            recover_packages(self.place, self.ledger, self.loaded)
            identity = Identity(caller.name, "admin")
        return governance(self.place, self.ledger, self.loaded, identity)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._runtime is not None and self._closes_runtime:
            self._runtime.close()
        for part in ("approvals", "keys", "ledger"):
            if part in vars(self).keys() - self._given:
                vars(self)[part].close()
