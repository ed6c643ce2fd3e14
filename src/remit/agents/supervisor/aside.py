"""Models that keep failing in a session are set aside until it ends (SPEC 11.2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from remit.agents.sessions import Marks
from remit.agents.supervisor.journal import SupervisorJournal
from remit.ledger import LedgerEntry, is_authentic

_COUNT = frozenset({"TIMEOUT", "RATE_LIMITED", "SERVER_ERROR", "PROVIDER_ERROR", "AUTH_ERROR"})
"""Failures of a model. What a request is refused for, its length or budget, says nothing of it."""

_LATEST = 50


class Tried(NamedTuple):
    """One exchange: which model, ``provider/model``, and how it ended."""

    entry_id: str
    model: str
    outcome: str
    error_code: str


def failing(newest_first: Iterable[Tried], after: int) -> dict[str, list[str]]:
    """By model the entries of its latest failures, where at least ``after`` came without a success.

    Failures that say nothing of the model, such as a cancellation, neither count nor interrupt.
    """
    runs: dict[str, list[str]] = {}
    answered: set[str] = set()
    for tried in newest_first:
        if tried.outcome == "success":
            answered.add(tried.model)
        elif tried.error_code in _COUNT and not any(_same(tried.model, one) for one in answered):
            runs.setdefault(tried.model, []).append(tried.entry_id)
    return {model: ids[::-1] for model, ids in runs.items() if len(ids) >= after}


def _same(asked: str, answered: str) -> bool:
    """Whether a model answers by its own name or, as a route's may, by a dated version's."""
    return answered == asked or re.fullmatch(re.escape(asked) + r"-\d[\d-]*", answered) is not None


class SetAside:
    """What one session has set aside, by its record alone.

    Args:
        journal: the supervisor's, of that session.
        next_best: names the models that the configuration has in place of a ``provider/model``.
        after: gives after how many failures in a row a model is set aside.
        own: provider and model of the agent; an exchange does not name a provider that its request
            named.
    """

    def __init__(
        self,
        journal: SupervisorJournal,
        next_best: Callable[[str], Sequence[str]],
        after: Callable[[], int],
        own: tuple[str, str] | None = None,
    ) -> None:
        self._journal = journal
        self._next_best = next_best
        self._after = after
        self._own = own
        self._read: tuple[int, int] | None = None  # latest signal and end that were read
        self._ended = -1
        self._instead: dict[str, str] = {}

    @property
    def models(self) -> tuple[str, ...]:
        """The models that are set aside, ``provider/model``."""
        return tuple(self._instead)

    def refresh(self, marks: Marks) -> None:
        """Read the state where the record may say more, or less, than was read before."""
        signal, ended = (-1 if seq is None else seq for seq in (marks.signal, marks.ended))
        found = (signal, ended)
        if found == self._read:
            return
        self._read, self._ended, self._instead = found, ended, {}
        if signal > ended:
            for entry in filter(is_authentic, self._since_end("SIGNAL_OBSERVED")):
                if entry.metadata.get("kind") == "set_aside":
                    self._instead[entry.metadata["name"]] = entry.metadata["instead"]

    def observe(self, work_order_id: str) -> None:
        """Set aside what keeps failing; what says so is held for the journal's next write."""
        exchanges = self._since_end("EXCHANGE", order="desc", limit=_LATEST)
        tried = map(self._tried, filter(is_authentic, exchanges))
        for model, evidence in failing(tried, self._after()).items():
            if model in self._instead or model.startswith("/"):
                continue  # on record already, or of a provider that is not
            left = (one for one in self._next_best(model) if one not in self._instead)
            instead = self._instead[model] = next(left, "")
            entry = self._journal.entry(
                "SIGNAL_OBSERVED", work_order_id, kind="set_aside", dimension="model", name=model,
                instead=instead, until="the session ends", evidence=evidence,
            )  # fmt: skip
            what = (
                f"{instead} is asked" if instead else "it has no fallback, so routes alone avoid it"
            )
            entry.reason = (
                f"{model} failed {len(evidence)} times in a row: {what} until the session ends"
            )
            self._journal.hold(entry)
            self._read = None  # what is held may never be written

    def _since_end(self, event_type: str, **how: Any) -> Iterable[LedgerEntry]:
        found = self._journal.ledger.query(
            session_id=self._journal.session_id, event_type=event_type, with_content=False, **how
        )
        return (entry for entry in found if int(entry.id[4:], 16) > self._ended)

    def _tried(self, exchange: LedgerEntry) -> Tried:
        data = exchange.metadata
        outcome, model = str(data.get("outcome", "")), str(data.get("model_id", ""))
        code = str(data.get("error_code", ""))
        if code == "TIMEOUT" and "time_to_first_token_ms" in data:
            code = "LONG"  # it was answering: a long answer is the request's doing
        if outcome == "success" and not (data.get("fallback_from") or data.get("decision_id")):
            model = str(data.get("requested_model_id") or model)  # answered with a version's name
        own = self._own[0] if self._own is not None and self._own[1] == model else ""
        name = f"{data.get('provider_id') or own}/{model}"
        return Tried(exchange.id, name, outcome, code)
