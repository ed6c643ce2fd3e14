"""Exclusion of models, tools and contract versions that keep failing in a session."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from remit.agents.sessions import Marks
from remit.agents.supervisor.journal import SupervisorJournal
from remit.agents.supervisor.tries import Tries, failing, is_version_of
from remit.kernel.errors import RemitError
from remit.ledger import LedgerEntry, LedgerPort, is_authentic

_log = logging.getLogger("remit.supervisor")

_WITHOUT = {
    "model": "it has no fallback, so routes alone avoid it",
    "tool": "it is not offered",
    "contract": "there is no version before it that allows no more, so it stays in use",
}
_INSTEAD = {"model": "{} is asked", "tool": "{} is offered", "contract": "{} is used"}


class AsidePolicy(Protocol):
    """The settings of exclusion."""

    @property
    def set_aside_after(self) -> int:
        """Number of consecutive turns with a failure after which a name is excluded."""
        ...

    @property
    def tool_fallbacks(self) -> Mapping[str, Sequence[str]]:
        """Substitutes of each tool, best first, keyed by tool id."""
        ...


NextBest = Callable[[str, Collection[str]], Sequence[str]]
"""What may stand in for a thing, the best first, but for what is set aside."""


class SetAside:
    """The names that one session excludes, derived from its entries alone.

    Args:
        journal: journal of the session's supervisor.
        next_best: substitutes, keyed by dimension: ``model``, ``tool`` or ``contract``.
        policy: returns the settings; called only after a failure.
        own: provider and model of the agent.

    Attributes:
        names: excluded models (``provider/model``), tools, and contract versions
            (``contract@version``).
    """

    def __init__(
        self,
        journal: SupervisorJournal,
        next_best: Mapping[str, NextBest],
        policy: Callable[[], AsidePolicy],
        own: tuple[str, str] | None = None,
    ) -> None:
        self._journal = journal
        self._next_best = next_best
        self._policy = policy
        self._own = own
        self._read: tuple[int, int] | None = None  # latest signal and end that were read
        self._ended = -1
        self.names: tuple[str, ...] = ()

    def refresh(self, marks: Marks) -> None:
        """Read the excluded names again if the session has a new signal or end."""
        signal, ended = (-1 if seq is None else seq for seq in (marks.signal, marks.ended))
        found = (signal, ended)
        if found == self._read:
            return
        self._read, self._ended, self.names = found, ended, ()
        if signal > ended:
            steps = steps_aside(self._journal.ledger, self._journal.session_id)
            own = (step for step in steps if int(step.id[4:], 16) > ended)
            self.names = tuple(dict.fromkeys(step.metadata["name"] for step in own))

    def observe(self, work_order_id: str, *dimensions: str) -> None:
        """Exclude what keeps failing; hold the ``SIGNAL_OBSERVED`` for the next write.

        If the settings cannot be read, log a warning and exclude nothing.

        Args:
            work_order_id: the order that just ended.
            dimensions: dimensions to check; all by default.
        """
        journal = self._journal
        tries = Tries(journal.ledger, journal.session_id, self._ended, self._own)
        kinds = {"model": tries.models, "tool": tries.tools, "contract": tries.contracts}
        for dimension in dimensions or kinds:
            tried = list(kinds[dimension]())
            if not any(one.failed and one.name not in self.names for one in tried):
                continue
            try:
                after = self._policy().set_aside_after
            except RemitError as error:  # no turn fails for it
                _log.warning("nothing is set aside in %s: %s", journal.session_id, error)
                return
            same = is_version_of if dimension == "model" else operator.eq
            for name, evidence in failing(tried, after, same).items():
                if name not in self.names:
                    self._set_aside(work_order_id, dimension, name, evidence)

    def _set_aside(
        self, work_order_id: str, dimension: str, name: str, evidence: Sequence[str]
    ) -> None:
        self.names += (name,)
        left = (
            one for one in self._next_best[dimension](name, self.names) if one not in self.names
        )
        instead = next(left, "")
        entry = self._journal.entry(
            "SIGNAL_OBSERVED", work_order_id, kind="set_aside", dimension=dimension, name=name,
            instead=instead, until="the session ends", evidence=list(evidence),
        )  # fmt: skip
        what = _INSTEAD[dimension].format(instead) if instead else _WITHOUT[dimension]
        entry.reason = f"{name} kept failing: {what} until the session ends"
        self._journal.hold(entry)
        self._read = None  # what is held may never be written


def steps_aside(ledger: LedgerPort, session_id: str) -> Iterator[LedgerEntry]:
    """Yield the entries with which a session excluded a name, including its earlier runs."""
    signals = ledger.query(session_id=session_id, event_type="SIGNAL_OBSERVED", with_content=False)
    for entry in filter(is_authentic, signals):
        if entry.metadata.get("kind") == "set_aside":
            yield entry
