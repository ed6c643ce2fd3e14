"""What keeps failing in a session is set aside until it ends."""

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
    """When a session sets things aside, and for what."""

    @property
    def set_aside_after(self) -> int:
        """In how many turns in a row a thing must have failed."""
        ...

    @property
    def tool_fallbacks(self) -> Mapping[str, Sequence[str]]:
        """The tools that may stand in for a tool, by its id, the best first."""
        ...


NextBest = Callable[[str, Collection[str]], Sequence[str]]
"""What may stand in for a thing, the best first, but for what is set aside."""


class SetAside:
    """What one session has set aside, by its record alone.

    Args:
        journal: the supervisor's, of that session.
        next_best: by dimension, ``model``, ``tool`` or ``contract``.
        policy: gives when something is set aside; asked only when something failed.
        own: provider and model of the agent.

    Attributes:
        names: what is set aside: models ``provider/model``, tools, and ``contract@version``.
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
        """Read the state where the record may say more, or less, than was read before."""
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
        """Set aside what keeps failing; what says so is held for the journal's next write.

        Args:
            work_order_id: the order after which it is looked at.
            dimensions: of what; of all when left out.
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
    """The entries with which a session set something aside, its earlier runs included."""
    signals = ledger.query(session_id=session_id, event_type="SIGNAL_OBSERVED", with_content=False)
    for entry in filter(is_authentic, signals):
        if entry.metadata.get("kind") == "set_aside":
            yield entry
