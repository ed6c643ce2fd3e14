"""The list of ADMIN's tools."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from remit.agents.admin.output import Toolset
from remit.agents.admin.redaction import Redactor
from remit.agents.admin.root_files import RootTools
from remit.agents.admin.sessions import SessionTools
from remit.agents.admin.usage import UsageTools
from remit.agents.tools import Tool
from remit.kernel.root import Root
from remit.kernel.settings import LoadedSettings, ToolSettings, load_settings
from remit.ledger import LedgerClient

_ORDER = (
    "query_ledger", "query_ledger_full", "verify_ledger", "trace_prompt_journey", "explain_route",
    "list_sessions", "session_overview", "reconstruct_session", "budget_status", "recall_turn",
    "usage", "read_file", "list_files", "show_runtime_config", "gate_check", "list_packages",
)  # fmt: skip


def admin_tools(
    ledger: LedgerClient,
    root: Path,
    settings: ToolSettings,
    loaded: LoadedSettings | None = None,
    *,
    operations: Iterable[Tool] = (),
) -> list[Tool]:
    """Return the tools that read one root. They change nothing, so each may run again.

    The order is fixed, whatever the order of ``operations``.

    Args:
        ledger: the root's ledger.
        root: directory of the root.
        settings: limits of tools, and patterns of hidden files.
        loaded: all settings in force; by default, those of the root's file and the environment,
            without flags.
        operations: the tools that :func:`remit.operations.make_tools` makes of operations;
            without them, only the tools of this room are returned.

    Raises:
        RemitError: ``loaded`` is not given, and the settings cannot be read: ConfigError if the
            root's file is invalid, ChangedFileError if an installed or learned file was changed.
        ValueError: ``operations`` contains a tool that is none of ADMIN's.
    """
    known = loaded or load_settings(Root(root).config)
    shared = ledger, root.resolve(), settings, Redactor.of(known)
    kinds: tuple[type[Toolset], ...] = SessionTools, UsageTools, RootTools
    own = [tool for kind in kinds for tool in kind(*shared).tools()]
    # The order decides the text of every request of ADMIN, and so the caches of providers.
    return sorted([*own, *operations], key=lambda tool: _ORDER.index(tool.tool_id))
