"""The parts of an open root that all its agents share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remit.agents import ApprovalQueue
from remit.agents.queue import OrderQueue
from remit.gateway import LLMGateway
from remit.gateway.budget import TokenBudgeter
from remit.gateway.leases import LeaseManager
from remit.kernel.root import Root
from remit.kernel.secrets import ConfiguredSecrets
from remit.kernel.settings import EffectiveSettings, LoadedSettings, Settings
from remit.ledger import LedgerClient


@dataclass(frozen=True, slots=True)
class Resources:
    """The parts of an open root that all its agents share.

    Attributes:
        own_providers: the program's own providers: id and name of the class.
    """

    root: Root
    loaded: LoadedSettings
    ledger: LedgerClient
    gateway: LLMGateway
    budgeter: TokenBudgeter
    leases: LeaseManager
    secrets: ConfiguredSecrets
    approvals: ApprovalQueue
    effective: EffectiveSettings
    orders: OrderQueue
    default_model: tuple[str, str]
    own_providers: Mapping[str, str]

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.loaded.settings
