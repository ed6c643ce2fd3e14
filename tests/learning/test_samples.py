"""Samples: exchanges with what came of them, as the record says it."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remit.gateway.auth import Identity
from remit.kernel.installed_files import shipped_file
from remit.learning import (
    Replay,
    Signal,
    SignalPolicy,
    give_feedback,
    gradable_exchanges,
    observe,
    read_samples,
)
from remit.learning.evidence.party_shares import rater_weights
from remit.learning.evidence.samples import Sample, corrects
from remit.learning.signals import read_signals
from remit.ledger import LedgerClient, LedgerEntry
from tests.support.agents import anthropic_runtime
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
        contract_id="PRC-A-001", prompt_pack_id="PRM-A-001", model_id="m",
        cost_nano=1000, latency_ms=5, reward=0.75, raters=("KEY-1", "KEY-2"), at=one.at,
    )  # fmt: skip
    assert (two.failed, two.retried, three.retried) == (True, True, False)
    assert three.reward == 0.125  # a judge's, where there is no other
    assert (one.judged, three.judged) == (False, True)
    assert (four.tainted, four.route, four.propensity, four.epoch) == ("fallback", "auto", 0.25, 3)
    assert four.cost_nano is None
    assert (five.tainted, five.cancelled) == ("erased", True)
    assert [s.exchange_id for s in read_samples(ledger, after=failed)] == [again, fell, gone]


def test_learnings_own_calls_are_no_samples(ledger: LedgerClient) -> None:
    """By the account that they count against: an agent's name is anyone's to choose."""
    mine = _exchange(ledger, agent_id="replay")
    _exchange(ledger, agent_id="AGT-1", charged_to=["session:learning"])
    assert [one.exchange_id for one in read_samples(ledger)] == [mine]


def test_a_replay_whose_first_reading_failed_reads_all_calls_again(ledger: LedgerClient) -> None:
    def exchange(**metadata: Any) -> str:
        told = {"prompt": [{"role": "user", "content": "q"}], "response": "a", "model_id": "m",
                "outcome": "success", "cost_usd": 0.5, **metadata}  # fmt: skip
        return ledger.write(LedgerEntry("EXCHANGE", "S", "SUCCESS", "r", metadata=told))

    asked = [exchange() for _ in range(3)]
    for one in asked[1:]:
        exchange(work_order_id=f"WO-R-{one}", charged_to=["session:learning"])
    lost = {"work_order_id": f"WO-R-{asked[0]}", "charged_to": ["session:learning"]}
    ledger.write(LedgerEntry("EXCHANGE_ORPHANED", "S", "ORPHANED", "r", metadata=lost))
    failures = [OSError("away")]

    def grade(entry: LedgerEntry, answer: str) -> float:
        if entry.id == asked[2] and failures:
            raise failures.pop()
        return 1.0

    gateway: Any = SimpleNamespace(cost_bound=lambda *_: 7)
    request: Any = SimpleNamespace(provider_id="p", model_id="m")
    replay = Replay(gateway, ledger, lambda _: request, grade, "WO-R", asked, "prices")
    with pytest.raises(OSError, match="away"):
        replay.run((), budget_nano=0)
    for _ in range(2):
        result = replay.run((), budget_nano=0)
        assert (result.calls, result.spent_nano) == (2, 2 * 500_000_000 + 7)


def test_an_answer_from_the_cache_counts_once(ledger: LedgerClient) -> None:
    """By the exchange that the provider answered; a judge and a search skip the copy too."""
    answered = _exchange(ledger)
    copy = _exchange(ledger, cached_from=answered, cost_usd=0)
    give_feedback(ledger, copy, score=0, by="KEY-1")
    assert [(one.exchange_id, one.reward) for one in read_samples(ledger)] == [(answered, None)]
    assert list(gradable_exchanges(ledger, "PRC-A-001")) == [answered]


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
        assert [len(s.failed_tools) for s in found] == [1, 0, 0, 0, 0, 0]
        assert [s.tools for s in found] == [("lookup",), (), (), (), (), ()]
        assert [s.failed_tools for s in found] == [("lookup",), (), (), (), (), ()]
        assert [s.corrected for s in found] == [True, True, False, False, False, False]
        assert [s.rejected for s in found] == [False, False, True, False, False, False]
        assert [s.repaired for s in found] == [False, False, False, False, True, False]
        assert [s.reward for s in found] == [0.5, 0.5, None, None, None, None]
        assert len({s.turn_id for s in found}) == 3
        assert all(s.prompt_pack_id and not s.tainted for s in found)


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


# -- Signals over samples, their policy, and their entries on a real ledger ----------------------


_SHIPPED = shipped_file("PKG-LEARNING-001", "HOT/documents/signals.json")
POLICY = SignalPolicy.from_json(_SHIPPED)


def _samples(count: int, failure: float, seed: int = 1, **fields: Any) -> Iterator[Sample]:
    rng = random.Random(seed)
    for number in range(count):
        yield Sample(
            exchange_id=f"LED-{number:08x}",
            contract_id="PRC-CLASSIFY-001",
            contract_version="1.0.0",
            tools=("read_file",),
            failed=rng.random() < failure,
            latency_ms=round(rng.lognormvariate(6, 0.3)),
            cost_nano=1_000_000,
            **{"model_id": "m", **fields},
        )


def _one(signals: list[Signal], dimension: str, metric: str) -> Signal:
    (found,) = (s for s in signals if (s.dimension, s.metric) == (dimension, metric))
    return found


def test_what_became_worse_is_crossed_with_the_exchanges_that_say_so() -> None:
    worse = [replace(s, at="2") for s in _samples(300, 0.4, seed=2)]
    signals = read_signals([*_samples(300, 0.05), *worse], POLICY, before="1")
    signal = _one(signals, "model", "failure")
    assert signal.crossed
    failed = [sample.exchange_id for sample in worse if sample.failed]
    assert list(signal.evidence) == failed[-50:]
    assert not _one(signals, "model", "latency").crossed


def test_a_shift_of_the_mix_is_no_worse_model_and_a_loss_within_a_task_is() -> None:
    """Simpson's paradox: both tasks are answered as before, or better, and the mean falls."""

    def mixed(shares: tuple[int, int], chat: float, code: float, at: str) -> Iterator[Sample]:
        draw = random.Random(f"{shares} {chat} {code}")
        for number in range(sum(shares)):
            task, good = ("chat", chat) if number % sum(shares) < shares[0] else ("code", code)
            yield Sample(
                exchange_id=f"LED-{number:08x}", model_id="m", task=task, at=at,
                reward=float(draw.random() < good), raters=(f"USR-{number % 5}",),
            )  # fmt: skip

    before = list(mixed((400, 100), 0.95, 0.5, "1"))
    for shares, chat, code, is_worse in (
        ((100, 400), 0.95, 0.5, False), ((100, 400), 0.97, 0.55, False),
        ((400, 100), 0.75, 0.5, True), ((250, 250), 0.85, 0.3, True),
    ):  # fmt: skip
        signals = read_signals([*before, *mixed(shares, chat, code, "3")], POLICY, before="2")
        reward = _one(signals, "model", "reward")
        assert reward.live.value < reward.baseline.value - 0.1
        assert reward.crossed is is_worse, (shares, chat, code)


@pytest.mark.parametrize("taint", ["fallback", "degradation", "erased"])
def test_tainted_samples_do_not_count(taint: str) -> None:
    samples = [*_samples(300, 0.0), *_samples(300, 1.0, tainted=taint)]
    signal = _one(read_signals(samples, POLICY), "model", "failure")
    assert (signal.baseline.samples, signal.live.samples) == (200, 100)
    assert not signal.crossed


def test_a_crossing_is_on_record_once_for_each_window(tmp_path: Path) -> None:
    signals = read_signals([*_samples(200, 0.0), *_samples(300, 0.5)], POLICY)
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        first = observe(ledger, signals, window="first 200")
        assert len(first) == 2  # the contract and the model fail
        assert observe(ledger, signals, window="first 200") == []
        assert len(observe(ledger, signals, window="epoch 1")) == 2
        entry = ledger.read(first[0])
        assert entry.metadata["metric"] == "failure"
        assert len(entry.metadata["evidence"]) == 50


def test_two_that_observe_at_once_write_once(target: str) -> None:
    signals = read_signals([*_samples(200, 0.0), *_samples(300, 0.5)], POLICY)
    with LedgerClient(target) as one, LedgerClient(target) as other:
        start = threading.Barrier(2)

        def write(ledger: LedgerClient) -> list[str]:
            start.wait()
            return observe(ledger, signals, window="first 200")

        with ThreadPoolExecutor(2) as pool:
            written = [name for ids in pool.map(write, (one, other)) for name in ids]
        assert len(written) == one.count() == 2


def test_one_partys_flood_crosses_nothing() -> None:
    def graded(rater: str, count: int, reward: float) -> list[Sample]:
        return [replace(s, reward=reward, raters=(rater,)) for s in _samples(count, 0.0)]

    people = [sample for name in "abcd" for sample in graded(name, 100, 1.0)]
    flood = graded("flood", 2_000, 0.0)
    mixed = [replace(s, reward=float(n % 2)) for n, s in enumerate(people)]
    now = [replace(s, epoch=1) for s in (*mixed[::10], *mixed[1::10], *flood)]
    among = _one(read_signals([*mixed, *now], POLICY, before_epoch=1), "model", "reward")
    assert among.live.value == pytest.approx(0.375, abs=0.01)  # 0.5, a quarter of it nothing but 0
    assert not among.crossed
    before = [replace(sample, epoch=0) for sample in people]
    live = [replace(sample, epoch=1) for sample in [*graded("a", 20, 1.0), *flood]]
    signal = _one(read_signals([*before, *live], POLICY, before_epoch=1), "model", "reward")
    assert (signal.live.samples, signal.live.effective_samples) == (2_020, pytest.approx(40))
    assert not signal.crossed
    worse = [replace(s, epoch=1, reward=0.0) for s in people]
    both = read_signals([*before, *worse], POLICY, before_epoch=1)
    assert _one(both, "model", "reward").crossed
