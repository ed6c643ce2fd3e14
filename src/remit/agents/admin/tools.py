"""ADMIN's tools (SPEC 9.3), put together."""

from __future__ import annotations

from pathlib import Path

from remit.agents.admin.budgets import budget_tools
from remit.agents.admin.configuration import configuration_tools
from remit.agents.admin.conversations import session_tools
from remit.agents.admin.entries import entry_tools
from remit.agents.admin.files import RootFiles, file_tools
from remit.agents.admin.governance import GatePort, governance_tools
from remit.agents.admin.hiding import Hiding
from remit.agents.admin.journeys import journey_tools
from remit.agents.tools import Tool
from remit.kernel.root import Root
from remit.kernel.settings import LoadedSettings, ToolSettings, load_settings
from remit.ledger import LedgerClient

__all__ = ["admin_tools"]


def admin_tools(
    ledger: LedgerClient,
    root: Path,
    settings: ToolSettings,
    loaded: LoadedSettings | None = None,
    *,
    gates: GatePort | None = None,
) -> list[Tool]:
    """The tools that look at one root. They change nothing in it, so each may run again.

    Args:
        ledger: the root's ledger.
        root: its directory.
        settings: limits.
        loaded: all settings in force; when left out, as the root's file and the environment have
            them, which knows nothing of flags.
        gates: the root's gates; without them there are no ``gate_check`` and
            ``list_packages``.
    """
    known = loaded or load_settings(Root(root).config)
    hiding = Hiding.of(known)
    files = RootFiles(root, settings.hidden_files, settings.max_output_bytes // 2, hiding)
    return [
        *entry_tools(ledger, settings, hiding),
        *session_tools(ledger, settings, hiding),
        *journey_tools(ledger, settings, hiding),
        *file_tools(files),
        *configuration_tools(known, settings, hiding),
        *budget_tools(ledger),
        *(() if gates is None else governance_tools(gates, settings, hiding)),
    ]
