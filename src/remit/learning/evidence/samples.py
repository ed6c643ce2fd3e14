"""Exchanges joined with their outcomes: one pass over the ledger, a page at a time."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple

import orjson

from remit.learning.evidence.feedback import JUDGES, erased_of, marks, parts, rater_of, reward_of
from remit.learning.exchanges import is_evidence, is_whole
from remit.ledger import LedgerReader, entry_id, parse_entry_id
from remit.routing import Weights, read_intent

Taint = Literal["", "fallback", "degradation", "erased"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An exchange with its outcome; a text without a recorded value is empty.

    Attributes:
        decision_id: id of the router's decision (`DEC-…`), if one chose the model.
        turn_id: id of the `TURN_RECORDED` entry, if the exchange was part of a turn.
        framework_id: the framework of the agent's package.
        route: the named route, if one chose the model.
        task: the task that the router reads in the prompt, if tasks were asked for.
        epoch: the policy epoch in force; 0 before the first adoption or canary.
        canary: the proposal whose canary the call belongs to; empty without one.
        arm: ``new`` or ``old`` if both routes of the canary could answer and choose different
            models, ``same`` if they choose one model, ``shadow`` if only the current route could;
            empty without a canary.
        propensity: probability with which this model was chosen; 1.0 without exploration.
        tools: ids of the tools that were called after it, before the next exchange of its order.
        cost_nano: cost in nano-dollars; None if unknown.
        tokens: input and output tokens.
        latency_ms: milliseconds from sending to the end of the answer.
        failed: True if the outcome is not ``success``.
        retried: True if another attempt followed.
        rejected: True if the quality gate rejected the work that the exchange was part of.
        repaired: True if the output did not fit and the model was asked again.
        corrected: True if the user's next message corrects the turn.
        cancelled: True if the caller cancelled the call.
        failed_tools: ids of the ``tools`` with a call whose status is not ``ok``.
        reward: mean of the feedback from 0 to 1, each party counting once; None without feedback.
        raters: the parties that gave the feedback: user ids, key ids or names.
        judged: True if only judges gave feedback; `read_judges` measures their reliability.
        tainted: the reason why no learner may use the sample; empty if it is clean.
        at: time of the exchange, ISO 8601 in UTC.
    """

    exchange_id: str
    decision_id: str = ""
    session_id: str = ""
    work_order_id: str = ""
    turn_id: str = ""
    agent_id: str = ""
    framework_id: str = ""
    contract_id: str = ""
    contract_version: str = ""
    prompt_pack_id: str = ""
    model_id: str = ""
    route: str = ""
    task: str = ""
    epoch: int = 0
    canary: str = ""
    arm: str = ""
    propensity: float = 1.0
    tools: tuple[str, ...] = ()
    cost_nano: int | None = None
    tokens: int = 0
    latency_ms: int = 0
    failed: bool = False
    retried: bool = False
    rejected: bool = False
    repaired: bool = False
    corrected: bool = False
    cancelled: bool = False
    failed_tools: tuple[str, ...] = ()
    reward: float | None = None
    raters: tuple[str, ...] = ()
    judged: bool = False
    tainted: Taint = ""
    at: str = ""


_PAGE = 1_000  # Exchanges of a page are joined in a few statements.
_NANO = 1_000_000_000
# These answers are complete, so another call in the same order asks for the answer again.
_FINAL_REASONS = frozenset({"stop", "end_turn", "stop_sequence"})
# Metadata of an EXCHANGE that a sample has under the same name.
_TEXTS = (
    "session_id", "work_order_id", "agent_id", "framework_id", "contract_id", "contract_version",
    "model_id",
)  # fmt: skip
_OF_ORDERS = ("EXCHANGE", "WO_PLANNED", "WO_QUALITY_GATE", "TOOL_CALL")
_OF_SESSIONS = ("TURN_RECORDED", "DEGRADATION")


class _Row(NamedTuple):
    """An entry as far as it is read, without content."""

    seq: int
    event_type: str
    metadata: dict[str, Any]
    timestamp: str = ""
    prompt_pack_id: str = ""


def read_samples(
    ledger: LedgerReader, *, after: str | None = None, contract_id: str | None = None,
    with_tasks: bool = False,
) -> Iterator[Sample]:  # fmt: skip
    """Yield exchanges with their outcomes, oldest first; memory does not grow with the ledger.

    Scores of the exchange, its work order, its turn or its decision apply: of the one with the
    highest rank of scores (``RANKS``), of equal ranks the first in this order. Learning's own calls
    and answers from the answer cache are left out. A retry is recognised if it is among the
    exchanges read, at most 1,000 later.

    Args:
        after: id of an entry; only later exchanges are read.
        contract_id: only exchanges of this contract; ``None`` for all.
        with_tasks: True to read the prompts, for the task of each.

    Raises:
        LedgerError: during the iteration, if the ledger cannot be read.
    """
    entries = ledger.query(
        event_type="EXCHANGE", after=after, contract_id=contract_id, with_content=False
    )
    rows = (
        _Row(parse_entry_id(one.id) or 0, "EXCHANGE", one.metadata, one.timestamp,
             next(iter(one.prompts_used), ""))
        for one in entries
        if is_evidence(one.metadata)
    )  # fmt: skip
    page = list(islice(rows, _PAGE))
    while page:
        following = list(islice(rows, _PAGE))
        retried = {str(row.metadata.get("retry_of")) for row in (*page, *following)}
        joined = _join(ledger, page)
        tasks = _tasks(ledger, page) if with_tasks else {}
        for row in page:
            yield _sample(row, joined, retried, tasks.get(row.seq, ""))
        page = following


@dataclass(slots=True)
class _Joined:
    """The entries that belong to a page of exchanges.

    Attributes:
        orders: entries of each work order, by order and event type, in order.
        turns: sequence numbers of the turns of each session, in order.
        degradations: sequence numbers of the degradations of each session.
        corrected: ids of turns whose next user message corrects.
        feedback: by target, the counting feedback of each party: source, and score if given.
    """

    erased: set[str]
    orders: dict[tuple[str, str], list[_Row]] = field(default_factory=lambda: defaultdict(list))
    turns: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    degradations: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    corrected: set[str] = field(default_factory=set)
    decisions: dict[str, str] = field(default_factory=dict)
    feedback: dict[str, dict[tuple[str, str], float | None]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def turn_of(self, row: _Row) -> int | None:
        """Return the sequence number of the turn of an exchange; ``None`` if it has none."""
        plan = self.of(row, "WO_PLANNED")
        if not plan or plan[0].metadata.get("turn_number") is None:
            return None
        turns = self.turns.get(str(row.metadata.get("session_id")), [])
        place = bisect_right(turns, row.seq)
        return turns[place] if place < len(turns) else None

    def is_degraded(self, row: _Row) -> bool:
        """Return True if the turn's loop had failed before the exchange."""
        session = str(row.metadata.get("session_id"))
        degraded, turns = self.degradations.get(session, []), self.turns.get(session, [])
        last = bisect_right(degraded, row.seq) - 1
        place = bisect_right(turns, degraded[last]) if last >= 0 else 0
        return last >= 0 and (place == len(turns) or turns[place] > row.seq)

    def asked_again(self, row: _Row) -> bool:
        """Return True if a complete answer was followed by another call that is not a retry."""
        if row.metadata.get("finish_reason") not in _FINAL_REASONS:
            return False
        later = [one for one in self.of(row, "EXCHANGE") if one.seq > row.seq]
        return bool(later) and later[0].metadata.get("retry_of") != entry_id(row.seq)

    def tool_calls(self, row: _Row) -> list[_Row]:
        """Return the tool calls between this exchange and the next one of its order."""
        later = [one.seq for one in self.of(row, "EXCHANGE") if one.seq > row.seq]
        end = later[0] if later else None
        calls = self.of(row, "TOOL_CALL")
        return [one for one in calls if one.seq > row.seq and (end is None or one.seq < end)]

    def said_of(self, row: _Row, turn_id: str) -> tuple[float | None, tuple[str, ...], bool]:
        """Return the feedback on an exchange: mean, raters, and whether the raters are judges.

        Each party counts once.
        """
        metadata = row.metadata
        plan = self.of(row, "WO_PLANNED")
        order = entry_id(plan[0].seq) if plan else ""
        decision = self.decisions.get(str(metadata.get("decision_id", "")), "")
        targets = (entry_id(row.seq), order, turn_id, decision)
        said = [reward_of(self.feedback.get(target, {})) for target in targets]
        rank, reward, raters = min(said, key=lambda one: one[0])
        return reward, raters, rank == JUDGES

    def of(self, row: _Row, event_type: str) -> list[_Row]:
        return self.orders.get((str(row.metadata.get("work_order_id") or ""), event_type), [])


def _join(ledger: LedgerReader, page: Sequence[_Row]) -> _Joined:
    """Return the entries that belong to a page, read in a few statements."""
    has_erased = bool(ledger.select("SELECT 1 FROM erasures LIMIT 1"))
    erased = erased_of(ledger.select, [row.metadata for row in page]) if has_erased else set()
    joined = _Joined(erased)
    orders = {str(order) for row in page if (order := row.metadata.get("work_order_id"))}
    for row in _rows(ledger, "work_order_id", orders, _OF_ORDERS):
        joined.orders[_order_of(row), row.event_type].append(row)
    if orders:
        _join_turns(ledger, page, joined)
    wanted = {str(one) for row in page if (one := row.metadata.get("decision_id"))}
    for part in parts(wanted):
        found = ledger.select(
            f"SELECT thought_id, seq FROM thoughts WHERE thought_id IN ({marks(part)})", part
        )
        joined.decisions.update((str(name), entry_id(int(seq))) for name, seq in found)
    targets = {entry_id(row.seq) for row in page} | set(joined.decisions.values())
    targets.update(entry_id(seq) for row in page if (seq := joined.turn_of(row)) is not None)
    for (_, event_type), rows in joined.orders.items():
        if event_type == "WO_PLANNED":
            targets.update(entry_id(row.seq) for row in rows)
    for row in _rows(ledger, "submission_id", targets, ("FEEDBACK",)):
        data = row.metadata
        party = (str(data["source"]), rater_of(data))
        joined.feedback[str(data["target_entry_id"])][party] = data.get("score")
    return joined


def _join_turns(ledger: LedgerReader, page: Sequence[_Row], joined: _Joined) -> None:
    """Add the turns and degradations of a page's sessions, and the corrected turns."""
    sessions = {
        str(row.metadata["session_id"]) for row in page if row.metadata.get("work_order_id")
    }
    for part in parts(sessions):
        # Answered from the index alone: no record is read.
        found = ledger.select(
            "SELECT session_id, event_type, seq FROM entries "
            f"WHERE session_id IN ({marks(part)}) AND event_type IN (?, ?) ORDER BY seq",
            [*part, *_OF_SESSIONS],
        )
        for session, event_type, seq in found:
            of = joined.turns if event_type == "TURN_RECORDED" else joined.degradations
            of[str(session)].append(int(seq))
    following: dict[int, int] = {}
    for row in page:
        turn = joined.turn_of(row)
        turns = joined.turns.get(str(row.metadata["session_id"]), [])
        if turn is not None and (place := bisect_right(turns, turn)) < len(turns):
            following[turn] = turns[place]
    said = {
        parse_entry_id(entry.id): entry.metadata.get("user_message")
        for entry in ledger.read_many(map(entry_id, {*following, *following.values()}))
    }
    for turn, later in following.items():
        asked, message = said[turn], said[later]
        if isinstance(asked, str) and isinstance(message, str) and corrects(message, asked):
            joined.corrected.add(entry_id(turn))


def _tasks(ledger: LedgerReader, page: Sequence[_Row]) -> dict[int, str]:
    """Return the task of each prompt that is recorded as a whole, by sequence number."""
    weights, found = Weights.shipped(), {}
    for entry in ledger.read_many(entry_id(row.seq) for row in page):
        prompt: Any = entry.metadata.get("prompt")
        if is_whole(prompt):
            found[parse_entry_id(entry.id) or 0] = read_intent(prompt, weights).task
    return found


def _sample(row: _Row, joined: _Joined, retried: set[str], task: str) -> Sample:
    data = row.metadata
    turn = joined.turn_of(row)
    turn_id = "" if turn is None else entry_id(turn)
    reward, raters, judged = joined.said_of(row, turn_id)
    calls = joined.tool_calls(row)
    gates = joined.of(row, "WO_QUALITY_GATE")
    rejected = any(gate.metadata.get("verdict") != "accept" for gate in gates)
    tool_failures = [call for call in calls if call.metadata.get("status") != "ok"]
    cost = data.get("cost_usd")
    failed = data.get("outcome") != "success"
    decision_id = str(data.get("decision_id", ""))
    canary = data.get("canary") or {"proposal_id": "", "arm": "", "differs": True, "share": 1}
    return Sample(
        exchange_id=entry_id(row.seq), decision_id=decision_id, turn_id=turn_id,
        prompt_pack_id=row.prompt_pack_id, task=task,
        route=_text(data, "requested_model_id") if decision_id else "",
        epoch=int(data.get("policy_epoch", 0)), canary=canary["proposal_id"],
        arm=(canary["arm"] if canary["share"] else "shadow") if canary["differs"] else "same",
        propensity=float(data.get("propensity", 1)),
        cost_nano=None if cost is None else round(cost * _NANO),
        tokens=int(data.get("input_tokens") or 0) + int(data.get("output_tokens") or 0),
        latency_ms=int(data.get("latency_ms", 0)), failed=failed,
        retried=entry_id(row.seq) in retried, rejected=rejected,
        repaired=joined.asked_again(row), corrected=turn_id in joined.corrected,
        cancelled=data.get("error_code") == "CANCELLED", tools=_tools(calls),
        failed_tools=_tools(tool_failures), reward=reward,
        raters=raters, judged=judged, tainted=_taint(row, joined), at=row.timestamp,
        **{name: _text(data, name) for name in _TEXTS},
    )  # fmt: skip


def _tools(calls: Iterable[_Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(call.metadata["tool_id"]) for call in calls))


def _taint(row: _Row, joined: _Joined) -> Taint:
    data = row.metadata
    if joined.erased and any(
        isinstance(item, dict) and str(item.get("$content", ""))[12:] in joined.erased
        for item in data.values()
    ):
        return "erased"
    if joined.is_degraded(row):
        return "degradation"
    return "fallback" if data.get("fallback_from") else ""


def _rows(
    ledger: LedgerReader, column: str, values: set[str], events: Sequence[str]
) -> Iterator[_Row]:
    """Yield entries of some types by the value of a column, in ledger order."""
    for part in parts(values):
        found = ledger.select(
            f"SELECT seq, event_type, record FROM entries WHERE {column} IN ({marks(part)}) "
            f"AND event_type || '' IN ({marks(events)}) ORDER BY seq",
            [*part, *events],
        )
        for seq, event_type, record in found:
            yield _Row(int(seq), str(event_type), orjson.loads(record)["metadata"])


def _order_of(row: _Row) -> str:
    provenance = row.metadata.get("provenance")
    place = provenance if isinstance(provenance, dict) else {}
    return str(row.metadata.get("work_order_id") or place.get("work_order_id") or "")


def _text(data: dict[str, Any], name: str) -> str:
    found = data.get(name)
    return found if isinstance(found, str) else ""


_MIN_WORDS = 3  # Fewer words do not distinguish a message.
_WORD = re.compile(r"[^\W_]{3,}")

# These phrases sound like corrections and are none.
_SMALL_TALK = re.compile(
    r"(no|nope|nein|nö)\b[\s,.!:;\u2013-]*(thanks?|thank you|thx|problem|worries|need|more|further|"
    r"that'?s (all|it|fine|great|good|ok)|that (is|was) (all|it|fine|great|good)|that will be all|"
    r"danke|passt|alles (gut|klar)|das (passt|reicht|war'?s|war alles|ist (alles|gut|in ordnung))|"
    r"(ich habe )?keine? (weitere|frage|problem))|no one|no idea|no doubt|no matter|"
    r"(not bad|nicht schlecht|kein problem|never ?mind|schon gut)\b",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"(no|nope|nein|nö)\s*[,.!:;\u2013-]+\s*\w|(wrong|incorrect|falsch|not (quite|that|what|like)|"
    r"nicht (ganz|das|was|so)|so nicht|noch ?mal|noch einmal|try (it )?again|do it again|once more|"
    r"versuch\w* es|nicht richtig)\b|"
    r"(that|this|it)( i|')s (still )?(not|wrong|incorrect|too|missing)\b|"
    r"(das|es) (ist|war|stimmt) (so |immer noch |leider |doch )*(nicht|falsch|zu|unvollständig)\b|"
    r"stimmt (so )?nicht|"
    r"i (meant|said|asked|wanted)\b|i did ?n['o]t (ask|mean|say|want)\b|"
    r"ich (meinte|sagte|fragte|wollte)\b|ich (habe|hatte)\b.*\b(gefragt|gesagt|gemeint|gebeten)\b|"
    r"you (misunderstood|forgot|missed|ignored|left out|got)\b|"
    r"du hast\b.*\b(vergessen|übersehen|missverstanden|falsch|ignoriert)\b|"
    r"sie haben\b.*\b(vergessen|übersehen|missverstanden|falsch|ignoriert)\b|"
    r"(please |bitte )?(fix|correct|korrigier\w*) (that|this|it|das|es|dies)\b|"
    r"actually,? (i|it|that|no)\b|eigentlich (meinte|wollte|ist)\b",
    re.IGNORECASE,
)


def corrects(message: str, asked: str) -> bool:
    """Return True if a message corrects the answer to ``asked``, or repeats that question.

    A message corrects if it begins with words of correction (``no, …``, ``that's wrong``, ``I
    meant``, ``nein, …``, ``das stimmt nicht``, ``ich meinte``) and not with small talk such as ``no
    thanks``. A message repeats the question if it contains each word of it with three letters or
    more, and the question has at least three such words.
    """
    text = " ".join(message.split()).replace("\u2019", "'")
    if _SMALL_TALK.match(text):
        return False
    if _CORRECTION.match(text):
        return True
    before = _words(asked)
    return len(before) >= _MIN_WORDS and before <= _words(text)


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}
