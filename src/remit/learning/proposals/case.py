"""The case for a change by the record: exchanges that it would have prevented, and the others."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.learning.evidence.samples import Sample
from remit.learning.proposals.change import Change
from remit.learning.statistics import ConfidenceSequence, difference

_EVIDENCE = 500  # Largest number of exchanges of a side that are named as evidence.


def case_of(
    change: Change, samples: Iterable[Sample], served_as: Mapping[str, str]
) -> dict[str, Any]:
    """Return the case for a change as arguments of :meth:`Learner.propose`.

    The predicted effect is the mean of the exchanges that the change would have left less that of
    those that it would have prevented: calls of a model set aside, calls with a tool that is no
    longer allowed, calls of a session or work order beyond its limit. An exchange counts with its
    reward, without one as 1 if it is valid, else as 0. The interval is valid at every look.

    Args:
        change: of the kind ``set_aside``, ``tool_permission`` or ``budget``.
        samples: recorded exchanges, oldest first.
        served_as: the provider's name of each model that has another name in the settings.

    Raises:
        InvalidInputError: no recorded exchange is one that the change prevents.
    """
    prevents = _rule(change, served_as)
    left, prevented = sides = ConfidenceSequence(), ConfidenceSequence()
    named = tuple(deque[str](maxlen=_EVIDENCE) for _ in sides)
    for one in samples:
        side = None if one.tainted or one.cancelled else prevents(one)
        if side is not None:
            sides[side].update(_outcome(one))
            named[side].append(one.exchange_id)
    if not prevented.samples:
        raise InvalidInputError(
            "The change would have prevented no recorded exchange, so nothing speaks for it.",
            next_step="State another model, other tools, or a lower limit.",
        )
    replay = {
        "left": left.samples, "prevented": prevented.samples,
        "mean_left": round(left.mean, 6), "mean_prevented": round(prevented.mean, 6),
    }  # fmt: skip
    evidence = [*named[0], *named[1]]
    return {"evidence": evidence, "predicted": difference(left, prevented), "replay": replay}


def _outcome(sample: Sample) -> float:
    if sample.reward is not None:
        return sample.reward
    bad = sample.failed or sample.rejected or sample.repaired or sample.failed_tools
    return float(not bad)


def _rule(change: Change, served_as: Mapping[str, str]) -> Callable[[Sample], bool | None]:
    """Return a function that is True for an exchange that the change prevents; None if the change
    does not concern the exchange.
    """
    if change.kind == "set_aside":
        names = {served_as.get(one, one) for one in change.settings["routing"]["set_aside"]}
        return lambda sample: sample.model_id in names
    if change.kind == "tool_permission":
        allowed = set(change.settings["chat"]["tools_allowed"])
        return lambda sample: not allowed.issuperset(sample.tools) if sample.tools else None
    limits = change.settings["budget"]
    tokens: dict[str, int] = defaultdict(int)
    turns: dict[str, set[str]] = defaultdict(set)

    def exceeds(sample: Sample) -> bool:
        session, order = sample.session_id, f"order {sample.work_order_id}"
        turns[session].add(sample.turn_id)
        tokens[session] += sample.tokens
        tokens[order] += sample.tokens
        reached = {"session_tokens": tokens[session], "work_order_tokens": tokens[order],
                   "session_turns": len(turns[session])}  # fmt: skip
        return any(reached[name] > most for name, most in limits.items())

    return exceeds
