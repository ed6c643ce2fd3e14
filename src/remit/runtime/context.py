"""What the kernel passes to the supervisor that it may not read by itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from remit.agents.supervisor import Candidate, open_threads
from remit.contracts import ContractLoader, required_context
from remit.kernel.errors import RemitError
from remit.kernel.installed import InstalledFiles
from remit.kernel.root import Root
from remit.kernel.settings import Settings
from remit.ledger import LedgerClient

_log = logging.getLogger("remit.runtime")
_POLICY = "HOT/policy/"
_POLICY_SUFFIXES = (".md", ".txt")
_BYTES_PER_TOKEN = 4
_MOST_THREADS = 50  # of other sessions, that are looked at


class KernelContext:
    """Adopted policy, and what an agent's other sessions left open.

    Args:
        root: whose packages bring policy as texts below ``HOT/policy/``, one a file.
        ledger: all tiers of it: the kernel sees everything and passes on little.
        contracts: they name their ``required_context``.
        settings: of the root.
        agent_id: whose sessions are meant.
        shares_sessions: whether what one session of the agent left open is shown in another; not
            for agents that serve people who must not hear of each other.
    """

    def __init__(
        self,
        root: Root,
        ledger: LedgerClient,
        contracts: ContractLoader,
        settings: Settings,
        agent_id: str,
        *,
        shares_sessions: bool,
    ) -> None:
        self._root = root
        self._installed = InstalledFiles(root.path)
        self._ledger = ledger
        self._contracts = contracts
        self._settings = settings
        self._agent_id = agent_id
        self._shares = shares_sessions

    def threads(self, session_id: str) -> Sequence[Candidate]:
        """Open threads of the agent's other sessions."""
        if not self._shares:
            return []
        return [
            replace(thread, kind="session")
            for thread in open_threads(self._ledger, agent_id=self._agent_id, most=_MOST_THREADS)
            if not thread.ref.startswith(f"THR-{session_id}-")
        ]

    def required(self, contract_id: str, session_id: str) -> Mapping[str, Any]:
        """What the contract asks for, as its own tier may see it."""
        contract = self._contracts.load(contract_id)
        if not contract.required_context:
            return {}
        return required_context(
            contract,
            self._ledger.scoped(tier="ho2"),
            self._root.tier("ho1"),
            session_id=session_id,
            max_bytes=self._settings.tools.max_output_bytes,
            installed=self._installed,
        )

    def policies(self) -> Sequence[Candidate]:
        """The policy files."""
        found = []
        for path in self._installed.paths(_POLICY):
            if not path.endswith(_POLICY_SUFFIXES):
                continue
            try:
                text, at = self._policy_text(path)
            except (OSError, UnicodeDecodeError, RemitError) as error:
                # One bad file must not silence an agent; the log says it.
                _log.error("the policy %s cannot be used: %s", path, error)
                continue
            found.append(Candidate("policy", path, text, 1.0, at))
        return found

    def _policy_text(self, path: str) -> tuple[str, str]:
        """The text of a policy and when it was written; of one that is too long, its beginning.

        Attention leaves out a text that does not fit, so a longer one would never be shown.
        """
        most = self._settings.supervisor.attention.tokens * _BYTES_PER_TOKEN + _BYTES_PER_TOKEN
        data = self._installed.read(path)
        written = (self._root.path / path).stat().st_mtime
        at = datetime.fromtimestamp(written, UTC).isoformat()
        cut = len(data) > most
        return data[:most].decode("utf-8", "ignore" if cut else "strict").strip(), at
