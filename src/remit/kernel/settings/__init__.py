"""The settings: ``remit.toml``, its schema, and the source of each value.

Start reading in ``layers`` (:func:`load_settings`); ``settings`` declares most sections.
"""

from remit.kernel.settings.agent_work import (
    ApprovalSettings as ApprovalSettings,
    OrderSettings as OrderSettings,
    QueueSettings as QueueSettings,
)
from remit.kernel.settings.effective import EffectiveSettings as EffectiveSettings
from remit.kernel.settings.interop import (
    A2aSettings as A2aSettings,
    McpEndpointSettings as McpEndpointSettings,
    McpRule as McpRule,
    McpServerSettings as McpServerSettings,
)
from remit.kernel.settings.layers import (
    LoadedSettings as LoadedSettings,
    default_settings as default_settings,
    describe as describe,
    load_settings as load_settings,
)
from remit.kernel.settings.learned_layer import (
    LEARNED_FOLDER as LEARNED_FOLDER,
    not_learnable as not_learnable,
)
from remit.kernel.settings.oidc import OidcSettings as OidcSettings
from remit.kernel.settings.routing import (
    ExplorationSettings as ExplorationSettings,
    GuardSettings as GuardSettings,
    RoutedModelSettings as RoutedModelSettings,
    RouteSettings as RouteSettings,
    RoutingSettings as RoutingSettings,
)
from remit.kernel.settings.schema import (
    AttentionSettings as AttentionSettings,
    BudgetSettings as BudgetSettings,
    GateSettings as GateSettings,
    LeaseSettings as LeaseSettings,
    LedgerSettings as LedgerSettings,
    LocalModelSettings as LocalModelSettings,
    PackageIndexSettings as PackageIndexSettings,
    PackageSettings as PackageSettings,
    ProviderSettings as ProviderSettings,
    ServerSettings as ServerSettings,
    Settings as Settings,
    SupervisorSettings as SupervisorSettings,
    ToolSettings as ToolSettings,
    WorkerSettings as WorkerSettings,
)
