"""Settings and parts of agents that no package brought: recorded ones are listed as waived."""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from remit.kernel.schemas import first_problem
from remit.ledger import LedgerClient, LedgerEntry, is_authentic
from remit.packages.checks import Finding
from remit.packages.config_changes import recorded_settings
from remit.packages.gates.context import GateContext

# Earlier versions wrote this agent id, and their sessions did not state parts of the agent.
_EARLIER_AGENT_ID = "ho1-worker"
_MAX_NAMES = 6
_MAX_SESSIONS = 4096  # More sessions are not cached.


class SessionStatements:
    """The tools, providers and contracts that sessions state as their agent's own.

    A session states them in its ``SESSION_START`` entry, for parts that its program brought and no
    package. A session without such an entry of a permitted writer, or whose entry does not state
    its settings, states nothing. The methods look up the session of an entry; up to 4,096 sessions
    are cached. Errors of the ledger are raised.

    Args:
        ledger: the root's ledger.

    Attributes:
        used: by description, such as ``the tool NAME``, the id of the first entry for which a
            method found the statement; empty at first.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._of = functools.lru_cache(_MAX_SESSIONS)(self._look_up)
        self.used: dict[str, str] = {}

    def tool(self, entry: LedgerEntry, tool_id: str) -> bool:
        """Return True if the session of a tool's entry states the tool as its agent's own.

        Sessions of versions that did not state tools, which wrote the agent id ``ho1-worker``,
        count as stating all. A stated tool is added to :attr:`used`. A statement that was erased
        counts as one.

        Args:
            entry: a ``TOOL_INTENT`` or ``TOOL_CALL`` entry.
            tool_id: the id of the tool.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        provenance = entry.metadata.get("provenance", {})
        own = self._of(str(provenance.get("session_id", "")))
        if own is None:
            if provenance.get("agent_id") != _EARLIER_AGENT_ID:
                return False
        elif not _states(own, "own_tools", tool_id):
            return False
        self.used.setdefault(f"the tool {tool_id}", entry.id)
        return True

    def provider(self, exchange: LedgerEntry, provider_id: str) -> bool:
        """Return True if the session of an exchange states that its program brought the provider.

        A stated provider is added to :attr:`used`. A statement that was erased counts as one.

        Args:
            exchange: an ``EXCHANGE`` entry.
            provider_id: the id of the provider.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        own = self._of(str(exchange.metadata.get("session_id", "")))
        if own is None or not _states(own, "own_providers", provider_id):
            return False
        self.used.setdefault(f"the provider {provider_id}", exchange.id)
        return True

    def contract(self, exchange: LedgerEntry) -> str:
        """Return the id of the contract of an exchange if no package and no session brought it;
        else an empty text.

        A stated contract is added to :attr:`used`. A statement that was erased counts as one. Only
        exchanges of work orders in ``ho1`` are examined; of these, no exchange of a framework, of a
        request over HTTP, or of the agent id ``ho1-worker`` that earlier versions wrote. Others
        give an empty text.

        Args:
            exchange: an ``EXCHANGE`` entry.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        data = exchange.metadata
        if (
            data.get("framework_id")
            or data.get("tier") != "ho1"
            or not data.get("work_order_id")
            or data.get("agent_id") == _EARLIER_AGENT_ID
            or data.keys() & {"key_id", "wire"}
        ):
            return ""
        contract_id = str(data.get("contract_id"))
        own = self._of(str(data.get("session_id")))
        if own is None or not _states(own, "own_contracts", contract_id):
            return contract_id
        self.used.setdefault(f"the contract {contract_id}", exchange.id)
        return ""

    def _look_up(self, session_id: str) -> Mapping[str, Any] | None:
        """Return the metadata of a session's start; ``None`` if it states no settings."""
        found = self._ledger.query(session_id=session_id, event_type="SESSION_START", limit=1)
        start = next(filter(is_authentic, found), None)
        if start is None or "settings_sha256" not in start.metadata:
            return None
        return start.metadata


def _states(start: Mapping[str, Any], key: str, name: str) -> bool:
    """Return True if a session's start states a part of its agent, or the statement was erased."""
    own = start.get(key, {})
    return not isinstance(own, Mapping) or name in own


def check_shapes(context: GateContext, first: int) -> Generator[Finding, None, list[str]]:
    """Check the settings in force and the latest session of each agent; yield the faults.

    Settings that differ from the packages' defaults must be recorded in the ledger. The own
    settings of an agent must keep within the ceilings of the installed frameworks; erased ones are
    not checked. Its quality gate must check something, unless the agent asks for a second opinion
    (the setting ``supervisor.verify``). Sessions that state no settings are skipped.

    Args:
        context: the root.
        first: the sequence number of the first session to check.

    Returns:
        Descriptions of recorded settings and instructions that no package brought.

    Raises:
        LedgerError: the ledger cannot be read.
        PackageError: ``registry_damaged``: an entry does not describe a package.
        OSError: the root cannot be opened.
    """
    waived = []
    effective = context.effective
    if effective is not None and (changed := sorted(effective.changed)):
        found = recorded_settings(context.ledger)
        same = (one.id for one in found if one.metadata["settings_sha256"] == effective.sha256)
        if entry_id := next(same, ""):
            waived.append(f"the settings {_some(changed)} ({entry_id})")
        else:
            problem = f"The settings in force are not recorded: {_some(changed)}."
            yield Finding(
                problem,
                "Start Remit with these settings, for example by `remit chat` or `remit serve`.",
            )
    for start in _latest_sessions(context, first):
        agent_id = start.metadata["provenance"]["agent_id"]
        where = f"The agent {agent_id} ({start.id})"
        overrides = start.metadata["overrides"]
        yield from _above_ceilings(context, overrides, where)
        second_opinion = isinstance(overrides, Mapping) and overrides.get("supervisor.verify")
        if start.metadata.get("criteria") == [] and not second_opinion:
            problem = f"{where} has a quality gate that checks nothing."
            yield Finding(problem, "Keep at least one criterion, such as non_empty.")
        if "instructions" in start.metadata:
            waived.append(f"the instructions of {agent_id} ({start.id})")
    return waived


def _above_ceilings(context: GateContext, values: Any, where: str) -> Iterator[Finding]:
    """Yield settings, by dotted key, that are above the ceilings of frameworks."""
    if not isinstance(values, Mapping):
        return  # The content was erased.
    for framework_id, framework in context.packages.frameworks.items():
        for name, schema in framework.config.items():
            if name in values and (wrong := first_problem(schema, values[name])):
                problem = f"{where}: {name} exceeds the ceiling of {framework_id}: {wrong}."
                yield Finding(problem, "Restart the agent with a permitted value.")


def _latest_sessions(context: GateContext, first: int) -> Iterator[LedgerEntry]:
    """Yield the latest ``SESSION_START`` of each agent that states its settings."""
    latest: dict[str, str] = {}
    for entry in context.ledger.query(
        event_type="SESSION_START", after=first - 1, with_content=False
    ):
        if "settings_sha256" in entry.metadata and is_authentic(entry):
            latest[entry.metadata["provenance"]["agent_id"]] = entry.id
    return map(context.ledger.read, latest.values())


def _some(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
