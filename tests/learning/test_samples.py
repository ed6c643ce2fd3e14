"""Samples: exchanges with what came of them, as the record says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import Identity
from remit.learning import Sample, give_feedback, rater_shares, rater_weights, read_samples
from remit.learning.evidence.corrections import corrects
from remit.ledger import LedgerClient, LedgerEntry
from tests.support.agents import anthropic_runtime
from tests.support.commands import run_remit
from tests.support.wire import anthropic_answer, tool_use


@pytest.mark.parametrize(
    ("message", "asked", "whether"),
    [
        ("No, I meant euros.", "How much is it?", True),
        ("That's wrong, the order is 12.", "Which order?", True),
        ("that\u2019s not what I asked", "x", True),
        ("Not quite. Try again.", "x", True),
        ("I said in German!", "x", True),
        ("You forgot the unit.", "x", True),
        ("How much is it in euros?", "how much is it", False),  # two words: too few to tell
        ("What is the price of the order in euros?", "What is the price of the order?", True),
        ("What is the capital of Spain?", "What is the capital of France?", False),
        ("Nein, ich meinte Euro.", "Was kostet das?", True),
        ("Das stimmt nicht.", "Was kostet das?", True),
        ("Falsch. Es sind 12.", "x", True),
        ("Ich hatte nach dem Preis gefragt", "x", True),
        ("Du hast die Einheit vergessen", "x", True),
        ("Noch einmal, aber auf Deutsch", "x", True),
        ("no thanks", "Anything else?", False),
        ("No, that's all.", "x", False),
        ("No problem, and what about Spain?", "x", False),
        ("Nein, danke!", "x", False),
        ("Nein, das passt so.", "x", False),
        ("Kein Problem. Und Spanien?", "x", False),
        ("Notes on Spain, please", "x", False),
        ("Thanks, great! Actually the weather is nice", "x", False),
        ("Wunderbar, und in Dollar?", "Was kostet es in Euro?", False),
        ("", "How much is the order", False),
        ("no", "Do you want more?", False),
    ],
)
def test_whether_a_message_corrects(message: str, asked: str, whether: bool) -> None:
    assert corrects(message, asked) is whether


def _exchange(ledger: LedgerClient, number: int = 0, /, **metadata: Any) -> str:
    data = {
        "session_id": f"SES-{number % 7}", "agent_id": "AGT-1", "work_order_id": "",
        "contract_id": "PRC-A-001", "framework_id": "FMWK-A", "prompt": f"question {number}",
        "response": f"answer {number}", "outcome": "success", "finish_reason": "stop",
        "model_id": "m", "latency_ms": 5, "key_id": "KEY-1", "cost_usd": 0.000001,
    }  # fmt: skip
    return ledger.write(
        LedgerEntry("EXCHANGE", "PRC-A-001", "SUCCESS", "ok", ["PRM-A-001"], {**data, **metadata})
    )


def test_what_an_exchange_and_its_feedback_say(ledger: LedgerClient) -> None:
    plain = _exchange(ledger)
    failed = _exchange(ledger, outcome="error", error_code="SERVER_ERROR")
    again = _exchange(ledger, attempt=2, retry_of=failed)
    fell = _exchange(
        ledger, fallback_from=[{"model_id": "a", "error_code": "TIMEOUT"}], decision_id="DEC-1",
        requested_model_id="auto", propensity=0.25, policy_epoch=3, cost_usd=None,
    )  # fmt: skip
    gone = _exchange(ledger, 1, outcome="error", error_code="CANCELLED")
    for key, score in (("KEY-1", 0), ("KEY-1", 1), ("KEY-2", 0.5)):
        give_feedback(ledger, plain, score=score, by=key,
                      identity=Identity(key, "operator", key_id=key))  # fmt: skip
    give_feedback(ledger, plain, score=0, by="judge", source="judge")
    give_feedback(ledger, again, score=0.125, by="judge", source="judge")
    ledger.erase(gone, reason="request 7")
    one, two, three, four, five = read_samples(ledger)
    assert one == Sample(
        exchange_id=plain, session_id="SES-0", agent_id="AGT-1", framework_id="FMWK-A",
        contract_id="PRC-A-001", prompt_pack_id="PRM-A-001", model_id="m", key_id="KEY-1",
        cost_nano=1000, latency_ms=5, reward=0.75, raters=("KEY-1", "KEY-2"), at=one.at,
    )  # fmt: skip
    assert (two.failed, two.retried, three.retried) == (True, True, False)
    assert three.reward == 0.125  # a judge's, where there is no other
    assert (one.judged, three.judged) == (False, True)
    assert (four.tainted, four.route, four.propensity, four.epoch) == ("fallback", "auto", 0.25, 3)
    assert four.cost_nano is None
    assert (five.tainted, five.cancelled) == ("erased", True)
    assert [s.exchange_id for s in read_samples(ledger, after=failed)] == [again, fell, gone]
    assert list(read_samples(ledger, since=two.at, until=four.at)) == [two, three]


def test_learnings_own_calls_are_no_samples(ledger: LedgerClient) -> None:
    """By the account that they count against: an agent's name is anyone's to choose."""
    mine = _exchange(ledger, agent_id="replay")
    _exchange(ledger, agent_id="AGT-1", charged_to=["session:learning"])
    assert [one.exchange_id for one in read_samples(ledger)] == [mine]


def test_an_agents_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools that fail, outputs asked for again, rejected orders, corrections: off a real run."""

    def lookup() -> str:
        """Look it up."""
        raise RuntimeError("out of order")

    script = [
        anthropic_answer(tool_use("lookup", {})), anthropic_answer("I could not look it up."),
        anthropic_answer("[error] out of luck"), anthropic_answer("In euros, sure."),
        anthropic_answer("not JSON"), anthropic_answer(json.dumps({"result": 12})),
    ]  # fmt: skip
    with anthropic_runtime(tmp_path / "root", monkeypatch, *script) as (runtime, _):
        agent = runtime.agent("clerk", tools=[lookup])
        with agent.session() as talk:
            talk.turn("What is the price of the order?")
            talk.feedback(0.5)
            talk.turn("No, I meant in euros.")
            talk.turn("Thanks, 12 as a number", output_type=int)
        found = list(read_samples(runtime.ledger))
        assert len(found) == 6, [s.contract_id for s in found]
        assert [s.tool_errors for s in found] == [1, 0, 0, 0, 0, 0]
        assert [s.tools for s in found] == [("lookup",), (), (), (), (), ()]
        assert [s.failed_tools for s in found] == [("lookup",), (), (), (), (), ()]
        assert [s.corrected for s in found] == [True, True, False, False, False, False]
        assert [s.rejected for s in found] == [False, False, True, False, False, False]
        assert [s.repaired for s in found] == [False, False, False, False, True, False]
        assert [s.reward for s in found] == [0.5, 0.5, None, None, None, None]
        assert {s.package_id for s in found} == {"PKG-HO1-EXECUTOR-001"}
        assert len({s.turn_id for s in found}) == 3
        assert all(s.prompt_pack_id and not s.tainted for s in found)


def test_a_flood_counts_once_for_each_exchange_and_at_most_its_share(ledger: LedgerClient) -> None:
    targets = [_exchange(ledger, number) for number in range(40)]
    flood = Identity("bot", "operator", key_id="KEY-F")
    for target in targets:
        for score in (0, 0):
            give_feedback(ledger, target, score=score, by="bot", identity=flood)
    for number, target in enumerate(targets[:12]):
        name = f"person-{number % 4}"
        give_feedback(ledger, target, score=1, by=name)
    samples = list(read_samples(ledger))
    assert samples[0].reward == 0.5  # two parties, each once
    shares = rater_shares(samples)
    assert (shares[0].rater, shares[0].graded) == ("KEY-F", 40)
    assert shares[0].share == pytest.approx(0.25)
    assert shares[0].weight == pytest.approx(0.1)
    assert [one.weight for one in shares[1:]] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "counts",
    [{}, {"a": 5}, {"a": 9, "b": 1}, {"a": 100, "b": 100, "c": 1, "d": 1, "e": 1, "f": 1},
     {"a": 0}, {"a": 0, "b": 0}, {"a": 9, "b": 0}, {"a": 90, "b": 9, "c": 3, "d": 1, "e": 0},
     {"a": 1000, "b": 10, "c": 10}, dict.fromkeys("abcdefgh", 3), {"a": 7, "b": 5, "c": 3, "d": 1}],
    ids=str,
)  # fmt: skip
def test_no_party_has_more_than_its_share(counts: dict[str, int]) -> None:
    weights = rater_weights(counts)
    assert weights.keys() == counts.keys()
    given = {rater: weights[rater] * counts[rater] for rater in counts}
    assert all(0 < weight <= 1 for weight in weights.values())
    parties = sum(count > 0 for count in counts.values())
    for part in filter(None, given.values()):
        assert part / sum(given.values()) <= max(0.25, 1 / parties) + 1e-9


def test_pages_of_the_record_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from remit.learning.evidence import samples

    monkeypatch.setattr(samples, "_PAGE", 3)
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        ids = []
        for number in range(10):
            more = {"retry_of": ids[-1]} if number % 2 else {"outcome": "error"}
            ids.append(_exchange(ledger, number, **more))
        found = list(read_samples(ledger))
        assert [s.exchange_id for s in found] == ids
        assert [s.retried for s in found] == [True, False] * 5
    root = tmp_path / "root"
    with (
        anthropic_runtime(root, monkeypatch, anthropic_answer("42")) as (runtime, _),
        runtime.agent("clerk").session() as talk,
    ):
        talk.turn("How much?")
        talk.feedback(1, by="ann")
    said = run_remit("feedback", "--shares", "--root", root, "--json")
    (share,) = json.loads(said.stdout)["raters"]
    assert share == {"rater": "ann", "graded": 1, "weight": 1.0, "share": 1.0}
