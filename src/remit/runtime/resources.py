"""What of an open root all its agents share."""

from __future__ import annotations

from dataclasses import dataclass

from remit.agents.approvals import ApprovalQueue
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
    """What of an open root all its agents share."""

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

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.loaded.settings
