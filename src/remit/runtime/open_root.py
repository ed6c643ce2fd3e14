"""A root as operations use it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Self

from remit.gateway.auth import Directory, KeyStore
from remit.gateway.budget import TokenBudgeter

if TYPE_CHECKING:
    from remit.kernel.settings import Settings
    from remit.ledger import LedgerClient


def _no_progress(label: str) -> Callable[[int, int], None]:
    return lambda done, total: None


class OpenRoot:
    """The :class:`remit.operations.RootPort` of commands and servers; parts are made at first use.

    As a context manager, an instance closes the parts that it made itself.

    Args:
        open_ledger: returns the ledger; an error is raised at the ledger's first use.
        load_settings: returns the settings in force.
        keys: the virtual keys; by default a store of the ledger.
        budgeter: the budgets; by default those of the ledger.
        progress: shows the progress of long work, as :meth:`RootPort.progress`.
    """

    def __init__(
        self,
        open_ledger: Callable[[], LedgerClient],
        load_settings: Callable[[], Settings],
        *,
        keys: KeyStore | None = None,
        budgeter: TokenBudgeter | None = None,
        progress: Callable[[str], Callable[[int, int], None]] = _no_progress,
    ) -> None:
        self._open_ledger = open_ledger
        self._load_settings = load_settings
        self._keys = keys
        self._budgeter = budgeter
        self.progress = progress

    @cached_property
    def ledger(self) -> LedgerClient:
        """The ledger, opened at first use."""
        return self._open_ledger()

    @cached_property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._load_settings()

    @cached_property
    def keys(self) -> KeyStore:
        """The virtual keys."""
        return self._keys or KeyStore(self.ledger)

    @cached_property
    def budgeter(self) -> TokenBudgeter:
        """The limits and the spending."""
        return self._budgeter or TokenBudgeter(self.ledger)

    @cached_property
    def directory(self) -> Directory:
        """The names of users, teams and organisations."""
        return Directory(self.ledger)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for part in ("keys", "ledger"):
            if part in vars(self):
                vars(self)[part].close()
