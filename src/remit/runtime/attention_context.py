"""Context that the kernel reads for the supervisor, which may not."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from remit.agents.supervisor import Candidate, open_threads
from remit.contracts import PromptContract, required_context
from remit.kernel.errors import RemitError
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.root import Root
from remit.kernel.settings import Settings
from remit.ledger import LedgerClient

_log = logging.getLogger("remit.runtime")
_POLICY = "HOT/policy/"
_POLICY_SUFFIXES = (".md", ".txt")
_BYTES_PER_TOKEN = 4
_MAX_TOPICS = 50  # Latest topics that are read.


@dataclass(eq=False, repr=False)
class KernelContext:
    """Adopted policies, and open topics of an agent's other sessions.

    The supervisor asks for them before a turn. Each call reads anew, blocks, and writes nothing. An
    instance can be used from several threads.

    Args:
        root: the root, whose packages bring policies as text files below ``HOT/policy/``.
        ledger: a client that reads all tiers; little of it is passed on.
        settings: settings of the root.
        agent_id: the agent whose sessions are read.
        shares_sessions: True if open topics of one session are shown in another. False for agents
            that serve people who must not learn of each other.
    """

    _root: Root
    _ledger: LedgerClient
    _settings: Settings
    _agent_id: str
    shares_sessions: bool

    def __post_init__(self) -> None:
        self._installed = InstalledFiles(self._root.path)

    def threads(self, session_id: str) -> Sequence[Candidate]:
        """Return open topics of the agent's other sessions, latest first, for attention.

        Empty if sessions are not shared. Only the agent's latest fifty topics are examined, closed
        ones and those of this session included.

        Args:
            session_id: the session whose own topics are left out.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if not self.shares_sessions:
            return []
        return [
            replace(thread, kind="session")
            for thread in open_threads(self._ledger, agent_id=self._agent_id, most=_MAX_TOPICS)
            if not thread.ref.startswith(f"THR-{session_id}-")
        ]

    def required(self, contract: PromptContract, session_id: str) -> Mapping[str, Any]:
        """Return the context that a contract requires: entries, frameworks and files, as texts.

        Entries are those that the tier ``ho2`` may see; files and frameworks are installed ones
        below ``HO1``. The context may have at most ``tools.max_output_bytes`` bytes.

        Args:
            contract: the contract, which names its ``required_context``.
            session_id: the session that the context is for.

        Returns:
            ``ledger`` (rows of the queries), ``frameworks`` (texts by id) and ``files`` (texts by
            path); empty if the contract requires no context.

        Raises:
            ContractError: a part of the context is missing, refused or too large.
            LedgerError: the ledger cannot be read.
        """
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
        """Return the texts of adopted policies as candidates for the prompt, in the order of their
        paths.

        Policies are files ``.md`` and ``.txt``. A text longer than the attention budget is cut. A
        file that is unreadable, or differs from the installed one, is logged and left out.

        Raises:
            ChangedFileError: the table of installed files cannot be read.
        """
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
        """Return the text of a policy and its time of writing; a long text is cut.

        An uncut text would never be shown, because attention leaves out texts that do not fit.
        """
        most = self._settings.supervisor.attention.tokens * _BYTES_PER_TOKEN + _BYTES_PER_TOKEN
        data = self._installed.read(path)
        written = (self._root.path / path).stat().st_mtime
        at = datetime.fromtimestamp(written, UTC).isoformat()
        cut = len(data) > most
        return data[:most].decode("utf-8", "ignore" if cut else "strict").strip(), at


def exclusion_policy(files: InstalledFiles) -> tuple[int, Mapping[str, Sequence[str]]]:
    """Return the number of failed turns that excludes a model, tool or contract, and substitutes.

    Args:
        files: installed files of the root, which hold the signal policy.

    Returns:
        The number, and by tool id the ids of the tools that can replace the tool.

    Raises:
        ConfigError: the file is not a signal policy.
        NotInstalledError: no package installed one.
        ChangedFileError: the policy differs from the installed one.
    """
    from remit.learning import SignalPolicy  # Only a failed turn needs the learning room.

    policy = SignalPolicy.installed(files)
    return policy.set_aside_after, policy.tool_fallbacks
