"""The settings: ``remit.toml``, its schema, and the source of each value.

Start reading in ``layers`` (:func:`load_settings`); ``settings`` declares most sections.
"""

from remit.kernel.settings.agent_work import ApprovalSettings, OrderSettings, QueueSettings
from remit.kernel.settings.effective import EffectiveSettings
from remit.kernel.settings.interop import (
    A2aSettings,
    McpEndpointSettings,
    McpRule,
    McpServerSettings,
)
from remit.kernel.settings.layers import LoadedSettings, default_settings, describe, load_settings
from remit.kernel.settings.learned_layer import LEARNED_FOLDER, not_learnable
from remit.kernel.settings.oidc import OidcSettings
from remit.kernel.settings.routing import (
    ExplorationSettings,
    GuardSettings,
    RoutedModelSettings,
    RouteSettings,
    RoutingSettings,
)
from remit.kernel.settings.schema import (
    AttentionSettings,
    BudgetSettings,
    GateSettings,
    LeaseSettings,
    LedgerSettings,
    LocalModelSettings,
    PackageIndexSettings,
    PackageSettings,
    ProviderSettings,
    ServerSettings,
    Settings,
    SupervisorSettings,
    ToolSettings,
    WorkerSettings,
)

__all__ = [
    "LEARNED_FOLDER",
    "A2aSettings",
    "ApprovalSettings",
    "AttentionSettings",
    "BudgetSettings",
    "EffectiveSettings",
    "ExplorationSettings",
    "GateSettings",
    "GuardSettings",
    "LeaseSettings",
    "LedgerSettings",
    "LoadedSettings",
    "LocalModelSettings",
    "McpEndpointSettings",
    "McpRule",
    "McpServerSettings",
    "OidcSettings",
    "OrderSettings",
    "PackageIndexSettings",
    "PackageSettings",
    "ProviderSettings",
    "QueueSettings",
    "RouteSettings",
    "RoutedModelSettings",
    "RoutingSettings",
    "ServerSettings",
    "Settings",
    "SupervisorSettings",
    "ToolSettings",
    "WorkerSettings",
    "default_settings",
    "describe",
    "load_settings",
    "not_learnable",
]
