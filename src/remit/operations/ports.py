"""The ports between operations and doors: the root, and the caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remit.kernel.errors import RemitError

if TYPE_CHECKING:
    from remit.agents import ApprovalQueue
    from remit.agents.queue import OrderQueue
    from remit.gateway import LLMGateway
    from remit.gateway.auth import Directory, Identity, KeyStore
    from remit.gateway.budget import TokenBudgeter
    from remit.kernel.root import Root
    from remit.kernel.settings import LoadedSettings, Settings
    from remit.learning.proposals import Governance
    from remit.ledger import Batch, LedgerClient
    from remit.packages import PackageManager, RootPrices
    from remit.packages.gates import GateContext
    from remit.routing import Router


class ForbiddenError(RemitError):
    """The caller lacks the right to make this change.

    Args:
        message: sentence for people.
        param: the field at fault; None if the right does not depend on a field.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class RootPort:
    """An open root, as operations use it. The runtime implements the port.

    Attributes:
        path: the directory that the command line names; None for the default root.
        place: the root.
        loaded: the settings in force, with their sources.
        settings: the settings in force.
        ledger: the ledger; operations that change something need its signing key.
        keys: the virtual keys.
        budgeter: the limits and the spending.
        directory: the names of users, teams and organisations.
        orders: the orders for workers.
        approvals: the requests for approval.
        prices: the prices in force.
        gateway: the gateway; only a server has one.
        screen: columns of the output, and True if it has colours.
        note: shows a message for people.
        step: shows the name of a step before the step.
        log_sender: returns the function that sends entries to a receiver of OpenTelemetry logs; the
            arguments are the URL and the name of the service. Only commands have it.
    """

    path: Path | None
    place: Root
    loaded: LoadedSettings
    settings: Settings
    ledger: LedgerClient
    keys: KeyStore
    budgeter: TokenBudgeter
    directory: Directory
    orders: OrderQueue
    approvals: ApprovalQueue
    prices: RootPrices
    gateway: LLMGateway
    screen: tuple[int, bool] = (120, False)
    note: Callable[[str], None]
    step: Callable[[str], None]
    log_sender: Callable[[str, str], Callable[[Batch], None]]

    def packages(self, caller: Caller) -> PackageManager:
        """Return the manager of packages; an interrupted change is finished or undone first."""
        raise NotImplementedError

    def gate_context(self) -> GateContext:
        """Return the inputs of the gates."""
        raise NotImplementedError

    def router(self, caller: Caller) -> Router:
        """Return the router; a command opens a runtime in the caller's name for it."""
        raise NotImplementedError

    def governance(self, caller: Caller) -> Governance:
        """Return the object that decides on proposals in the caller's name."""
        raise NotImplementedError

    def progress(self, label: str) -> Callable[[int, int], None]:
        """Return a function that reports the number of done and of all items of a long work."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an operation.

    Attributes:
        who: name and permissions; or the name of the person at the command line, whose permissions
            are those of the files.
        subject_id: the person whom the content of the request is about; empty for nobody.
        confirm: asks a question before an irreversible change; raises if the answer is no.
    """

    who: Identity | str
    subject_id: str = ""
    confirm: Callable[[str], None] = lambda question: None

    @property
    def is_local(self) -> bool:
        """True for the person at the command line."""
        return isinstance(self.who, str)

    @property
    def identity(self) -> Identity:
        """Name and permissions; the person at the command line is an operator."""
        if not isinstance(self.who, str):
            return self.who
        from remit.gateway.auth import Identity  # much to import, for few commands

        return Identity(self.who, "operator", pass_through=("*",))

    def may(self, permission: str) -> bool:
        """Return True if the caller has a permission; at the command line, always."""
        return self.is_local or self.identity.may(permission)

    @property
    def id(self) -> str:
        """The id of the caller's key, or the caller's name without a key."""
        return self.who if isinstance(self.who, str) else self.who.key_id or self.who.name

    @property
    def name(self) -> str:
        """Name and key id, for the record; the name of a revoked key may be used again."""
        return self.who if isinstance(self.who, str) else name_of(self.who)


def name_of(identity: Identity) -> str:
    """Return name and key id of a caller, for the record."""
    return f"{identity.name} ({identity.key_id})" if identity.key_id else identity.name
