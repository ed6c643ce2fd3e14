"""``remit.toml``, its schema, and where each value came from (SPEC 13)."""

from remit.config.loading import LoadedSettings, default_settings, describe, load_settings
from remit.config.settings import (
    AuthSettings,
    BudgetSettings,
    ChatSettings,
    GatewaySettings,
    LedgerSettings,
    LocalModelSettings,
    ModelSettings,
    ProviderSettings,
    ServerSettings,
    Settings,
    SupervisorSettings,
    TelemetrySettings,
    ToolSettings,
    WorkerSettings,
)

__all__ = [
    "AuthSettings",
    "BudgetSettings",
    "ChatSettings",
    "GatewaySettings",
    "LedgerSettings",
    "LoadedSettings",
    "LocalModelSettings",
    "ModelSettings",
    "ProviderSettings",
    "ServerSettings",
    "Settings",
    "SupervisorSettings",
    "TelemetrySettings",
    "ToolSettings",
    "WorkerSettings",
    "default_settings",
    "describe",
    "load_settings",
]
