"""Conversations as the runtime records them, to be written again under other names."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.agents.conversations import tools
from benchmarks.agents.runners.script import INSTRUCTIONS, question
from benchmarks.agents.stepping import SteppingProvider
from remit.ledger import LedgerEntry, entry_id, parse_entry_id
from remit.runtime import Runtime

TURNS = 10
_ID = re.compile(r"LED-[0-9a-f]{8}\b")
_NUMBER = re.compile(r"Question \d+")
_MODELS = ("gpt-4o-mini", "gpt-4o", "gpt-4.1", "o4-mini")
_FALLBACK = [{"provider_id": "openai", "model_id": "gpt-4o", "error_code": "RATE_LIMITED"}]


@dataclass(frozen=True)
class Recorded:
    """Entries in the order of the ledger that they were taken from.

    Attributes:
        session_id: theirs.
        first: the sequence number of the first.
        entries: each as JSON text: type, submission, decision, reason, prompts, metadata.
    """

    session_id: str
    first: int
    entries: tuple[str, ...]

    def again(
        self, session_id: str, base: int, chance: random.Random, turn: int = 0
    ) -> Iterator[LedgerEntry]:
        """The same under another name.

        Args:
            session_id: of the copy.
            base: the sequence number that its first entry will have.
            chance: says what was asked, of which model, by whom and at what cost.
            turn: the number of the turn, where it is one that is taken out of its session.
        """
        moved = base - self.first
        number = f"Question {chance.getrandbits(40)}"

        def there(found: re.Match[str]) -> str:
            return entry_id((parse_entry_id(found[0]) or 0) + moved)

        for text in self.entries:
            text = text.replace(self.session_id, session_id)
            text = _NUMBER.sub(number, _ID.sub(there, text))
            if turn:
                text = text.replace(f"{session_id}-002", f"{session_id}-{turn:03d}")
            event, submission, decision, reason, prompts, metadata = json.loads(text)
            if turn and "turn_number" in metadata:
                metadata["turn_number"] = turn
            if event == "EXCHANGE":
                _vary(metadata, chance)
            yield LedgerEntry(event, submission, decision, reason, prompts, metadata)


def _vary(metadata: dict[str, Any], chance: random.Random) -> None:
    metadata["model_id"] = chance.choice(_MODELS)
    metadata["key_id"] = f"KEY-{chance.randrange(20):016d}"
    metadata["cost_usd"] = round(chance.uniform(0.00001, 0.002), 9)
    metadata["latency_ms"] = round(chance.uniform(300, 4000), 1)
    drawn = chance.random()
    if drawn < 0.01:
        metadata["fallback_from"] = _FALLBACK
    elif drawn < 0.02:
        metadata |= {"outcome": "error", "error_code": "TIMEOUT"}
    elif drawn < 0.05:
        metadata["cost_certainty"] = "estimated"


@dataclass(frozen=True)
class Script:
    """What was recorded.

    Attributes:
        session: ten turns, each with one tool call.
        turn: one of them, out of a session.
        approved: a turn that waited for a person, who granted it.
        waits: one that waits still.
    """

    session: Recorded
    turn: Recorded
    approved: Recorded
    waits: Recorded


def record(runtime: Runtime) -> Script:
    """Have conversations in a root, with a provider that takes no time."""
    runtime.gateway.register_provider("openai", SteppingProvider())
    plain = runtime.agent("clerk", instructions=INSTRUCTIONS, tools=tools())
    asking = runtime.agent(
        "cashier", instructions=INSTRUCTIONS, tools=tools(), approve=["find_city"]
    )
    session = plain.session()
    for number in range(TURNS):
        session.turn(question(number, 1))
    whole = _taken(runtime.ledger.query(session_id=session.session_id))
    paused = asking.session()
    paused.turn(question(TURNS, 1))
    waits = _taken(runtime.ledger.query(session_id=paused.session_id))
    (request,) = runtime.approvals.pending(session_id=paused.session_id)
    runtime.approvals.decide(request.request_id, granted=True, by="ann", reason="she may know")
    paused.resume()
    approved = _taken(runtime.ledger.query(session_id=paused.session_id))
    ends = [place for place, text in enumerate(whole.entries) if text.startswith('["TURN_REC')]
    begin, end = ends[0] + 1, ends[1] + 1
    turn = Recorded(whole.session_id, whole.first + begin, whole.entries[begin:end])
    return Script(whole, turn, approved, waits)


def _taken(entries: Iterable[LedgerEntry]) -> Recorded:
    found: Sequence[LedgerEntry] = list(entries)
    texts = [
        json.dumps(
            [one.event_type, one.submission_id, one.decision, one.reason, one.prompts_used,
             one.metadata]
        )
        for one in found
    ]  # fmt: skip
    first = parse_entry_id(found[0].id) or 0
    assert [parse_entry_id(one.id) for one in found] == [*range(first, first + len(found))]
    provenance = found[0].metadata["provenance"]
    return Recorded(str(provenance["session_id"]), first, tuple(texts))
