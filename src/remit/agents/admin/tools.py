"""The list of ADMIN's tools."""

from __future__ import annotations

from pathlib import Path

from remit.agents.admin.ledger import LedgerTools
from remit.agents.admin.output import GatePort, Toolset
from remit.agents.admin.redaction import Redactor
from remit.agents.admin.root import RootTools
from remit.agents.admin.sessions import SessionTools
from remit.agents.admin.usage import UsageTools
from remit.agents.tools import Tool
from remit.kernel.root import Root
from remit.kernel.settings import LoadedSettings, ToolSettings, load_settings
from remit.ledger import LedgerClient


def admin_tools(
    ledger: LedgerClient,
    root: Path,
    settings: ToolSettings,
    loaded: LoadedSettings | None = None,
    *,
    gates: GatePort | None = None,
) -> list[Tool]:
    """Return the tools that read one root. They change nothing, so each may run again.

    Args:
        ledger: the root's ledger.
        root: directory of the root.
        settings: limits of tools, and patterns of hidden files.
        loaded: all settings in force; by default, those of the root's file and the environment,
            without flags.
        gates: gates and packages of the root; None omits ``gate_check`` and ``list_packages``.

    Raises:
        ConfigError: ``loaded`` is not given, and the root's file is invalid.
    """
    known = loaded or load_settings(Root(root).config)
    shared = ledger, root.resolve(), known, settings, Redactor.of(known), gates
    kinds: tuple[type[Toolset], ...] = (
        LedgerTools, SessionTools, UsageTools, RootTools,
    )  # fmt: skip
    return [tool for kind in kinds for tool in kind(*shared).tools()]
