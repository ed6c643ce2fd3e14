"""Feedback: given in Python and on the command line, refused plainly, erased with its target."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import Identity
from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.root import Root
from remit.learning import (
    feedback_on,
    give_feedback,
    grade_by_reference,
    grade_by_schema,
    grade_by_test,
    held_out_sides,
    is_held_out,
)
from remit.learning.proposals import Proposals
from remit.ledger import EntryNotFoundError, Erased, LedgerClient, LedgerEntry
from remit.runtime import Conversation, Runtime
from tests.learning.conftest import CONTRACT, MODEL
from tests.learning.test_prompt_loop import RIGHT, Reflecting
from tests.learning.test_wrong_question import (
    CONTRACT as WEIGH,
    RULE,
    SYSTEM,
    WEAK,
    Model,
    request,
    world,
)
from tests.support.agents import anthropic_runtime
from tests.support.commands import run_remit
from tests.support.roots import new_root
from tests.support.scripted import Scripted
from tests.support.stores import checkpoint, conversation, files_hold
from tests.support.wire import anthropic_answer

ANSWER = anthropic_answer("It is 42.")


def test_each_kind_of_target_by_each_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with anthropic_runtime(tmp_path / "root", monkeypatch, ANSWER) as (runtime, _):
        ledger = runtime.ledger
        with runtime.agent("clerk").session() as talk:
            talk.turn("How much is it?")
            first = talk.feedback(0.25, label="wrong_unit", reason="euros, not dollars")
            talk.turn("In euros, please.")
            assert talk.feedback(1, turn=1).replaces == first.entry_id
            (exchange, _) = ledger.query(event_type="EXCHANGE", session_id=talk.session_id)
            (order, _) = ledger.query(event_type="WO_PLANNED", session_id=talk.session_id)
            turn = next(ledger.query(event_type="TURN_RECORDED", session_id=talk.session_id))
            assert (first.target_entry_id, first.target_type) == (turn.id, "turn")
            call = next(ledger.query(event_type="LLM_CALL", session_id=talk.session_id))
            dispatch = exchange.metadata["dispatch_entry_id"]
            for name, found, kind in (
                (exchange.id, exchange.id, "exchange"), (dispatch, exchange.id, "exchange"),
                (call.id, exchange.id, "exchange"), (turn.id, turn.id, "turn"),
                (f"{talk.session_id}/1", turn.id, "turn"),
                (order.submission_id, order.id, "work_order"), (order.id, order.id, "work_order"),
            ):  # fmt: skip
                given = give_feedback(ledger, name, score=0.5, by=f"who says {name}")
                assert (given.target_entry_id, given.target_type) == (found, kind), name
                assert given.session_id == talk.session_id
            for target in (exchange.id, order.submission_id, turn.id):
                assert grade_by_reference(ledger, target, " it is  42 ", by="ci").score == 1
            assert grade_by_reference(ledger, exchange.id, "41", by="ci").score == 0
            assert grade_by_schema(ledger, exchange.id, {"type": "object"}, by="ci").score == 0
            graded = grade_by_test(ledger, exchange.id, lambda text: "42" in text, by="ci")
            assert (graded.score, graded.source) == (1, "test")
            before = ledger.count()
            with pytest.raises(InvalidInputError, match="JSON Schema"):
                grade_by_schema(ledger, exchange.id, {"type": "nothing"}, by="ci")
            with pytest.raises(InvalidInputError, match="0 to 1"):
                grade_by_test(ledger, exchange.id, lambda text: len(text), by="ci")
            with pytest.raises(ZeroDivisionError):
                grade_by_test(ledger, exchange.id, lambda text: 1 / 0, by="ci")
            for nothing in (
                "", "LED-", "LED-0000ffff", "DEC-" + "0" * 32, "WO-nothing", "SES-NOTHING1",
                f"{talk.session_id}/9", f"{talk.session_id}/x", "a\x00b", dispatch[:-1],
                next(ledger.query(event_type="SESSION_START")).id,
            ):  # fmt: skip
                with pytest.raises(EntryNotFoundError, match="cannot be rated"):
                    give_feedback(ledger, nothing, score=1, by="me")
            assert ledger.count() == before
        assert runtime.ledger.verify().verified


def _exchange(ledger: LedgerClient, **metadata: Any) -> str:
    return ledger.write(
        LedgerEntry(
            "EXCHANGE", "PRC-A-001", "SUCCESS", "ok",
            metadata={"session_id": "SES-A", "response": "an answer", "prompt": "a question",
                      **metadata},
        )
    )  # fmt: skip


def test_twice_replaces_and_an_idempotency_key_makes_it_one(ledger: LedgerClient) -> None:
    target = _exchange(ledger)
    first = give_feedback(ledger, target, score=0, by="ann", idempotency_key="a")
    again = give_feedback(ledger, target, score=0, by="ann", idempotency_key="a")
    assert (again.entry_id, again.again, ledger.count()) == (first.entry_id, True, 2)
    with pytest.raises(ConflictError, match="other feedback"):
        give_feedback(ledger, target, score=1, by="ann", idempotency_key="a")
    other = give_feedback(ledger, target, score=1, by="bob", idempotency_key="a")
    assert other.replaces == ""
    later = give_feedback(ledger, target, score=1 / 3, by="ann")
    assert later.replaces == first.entry_id
    latest = give_feedback(ledger, target, label="good", by="ann")
    assert latest.replaces == later.entry_id
    assert [one.score for one in feedback_on(ledger, target)] == [0, 1, 0.333333, None]
    key = Identity("app", "agent", key_id="KEY-1", user_id="u-1")
    with pytest.raises(EntryNotFoundError):
        give_feedback(ledger, target, score=1, by="app", identity=key)
    mine = _exchange(ledger, session_id="SES-B", key_id="KEY-1")
    assert give_feedback(ledger, mine, score=1, by="app", identity=key).key_id == "KEY-1"


def test_an_erased_target_is_refused(ledger: LedgerClient) -> None:
    target = _exchange(ledger)
    ledger.erase(target, reason="request 7")
    before = ledger.count()
    with pytest.raises(ConflictError, match="erased"):
        give_feedback(ledger, target, score=1, by="ann")
    assert ledger.count() == before


@pytest.mark.any_store
@pytest.mark.parametrize("how", ["entry", "session", "subject", "retention"])
def test_a_reason_is_erased_with_what_it_is_about(place: tuple[str, Path], how: str) -> None:
    target, directory = place
    secret = "orchids wilt in Valparaiso"
    with LedgerClient(target) as ledger:
        conversation(ledger, "SES-OTHER", 3)
        exchange = ledger.write(
            LedgerEntry("EXCHANGE", "PRC-A-001", "SUCCESS", "ok",
                        metadata={"session_id": "SES-A", "response": "yes", "prompt": "well?"}),
            subject_id="person-7",
        )  # fmt: skip
        given = give_feedback(ledger, exchange, score=0, reason=secret, by="ann")
        kept = give_feedback(
            ledger, next(ledger.query(session_id="SES-OTHER")).id, score=1, reason="kept", by="ann"
        )
        checkpoint(target)
        assert files_hold(directory, secret)
        if how == "retention":
            ledger.retain({"EXCHANGE": 0})
        else:
            ledger.erase(
                exchange if how == "entry" else None,
                session_id="SES-A" if how == "session" else None,
                subject_id="person-7" if how == "subject" else None,
                reason="request 7",
            )
        assert files_hold(directory, secret) == []
        said = next(feedback_on(ledger, exchange))
        assert (said.entry_id, said.score) == (given.entry_id, 0)
        assert isinstance(said.reason, Erased)
        if how != "retention":
            assert next(feedback_on(ledger, kept.target_entry_id)).reason == "kept"
        assert ledger.verify().verified


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    with anthropic_runtime(root, monkeypatch, ANSWER) as (runtime, _):
        talk: Conversation = runtime.agent("clerk").session()
        with talk:
            talk.turn("How much is it?")
        exchange = next(runtime.ledger.query(event_type="EXCHANGE"))
    give = ("feedback", exchange.id, "--root", root)
    said = run_remit(*give, "--score", "0.5", "--label", "vague", "--reason", "which one?")
    assert said.returncode == 0, said.stderr
    assert f"exchange {exchange.id}: 0.5 vague (person: " in said.stdout
    again = run_remit(*give, "--score", "0", "--json")
    assert json.loads(again.stdout)["replaces"] == said.stdout.split()[0]
    assert "replaces" in run_remit(*give, "--score", "0").stdout
    by_reference = (*give, "--reference", "It is 42", "--reason", "as asked",
                    "--idempotency-key", "check-1", "--json")  # fmt: skip
    graded = json.loads(run_remit(*by_reference).stdout)
    assert (graded["score"], graded["source"], graded["reason"]) == (1, "reference", "as asked")
    assert json.loads(run_remit(*by_reference).stdout)["entry_id"] == graded["entry_id"]
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    assert json.loads(run_remit(*give, "--schema", schema, "--json").stdout)["score"] == 0
    listed = json.loads(run_remit(*give, "--json").stdout)["feedback"]
    assert [one["source"] for one in listed] == ["person"] * 3 + ["reference", "schema"]
    assert len(run_remit("feedback", "--root", root, "--limit", "2").stdout.splitlines()) == 2
    for arguments, code, words in (
        (("--score", "2"), 2, "from 0 to 1"), (("--score", "nan"), 2, "--score 'nan'"),
        (("--score", "1", "--reference", "x"), 2, "or --reference"), (("--reason", "x"), 2, "Give"),
        (("--schema", tmp_path / "none"), 2, "cannot be read"),
    ):  # fmt: skip
        wrong = run_remit(*give, *arguments)
        assert (wrong.returncode, words in wrong.stderr) == (code, True), wrong.stderr
    unknown = run_remit("feedback", "LED-0000ffff", "--score", "1", "--root", root)
    assert (unknown.returncode, "next:" in unknown.stderr) == (1, True)
    with Runtime.open(root) as runtime:
        assert sum(1 for _ in feedback_on(runtime.ledger)) == 5


# -- A price that changes: the signals name the model and the route that became dearer ------------


def _calls(ledger: LedgerClient, count: int, usd: float) -> None:
    """Record calls of one model that a route chose."""
    for number in range(count):
        meta = {
            "session_id": "SES-1", "prompt": f"Question {number}?", "response": "42",
            "model_id": "gemini", "provider_id": "google", "outcome": "success",
            "cost_usd": usd * (1 + number % 7 / 10), "requested_model_id": "auto",
            "decision_id": f"DEC-{number:032x}",
        }  # fmt: skip
        ledger.write(LedgerEntry("EXCHANGE", "", "SUCCESS", "ok", metadata=meta))


@pytest.mark.parametrize(("factor", "dearer"), [(4.0, True), (1.0, False), (0.25, False)])
def test_a_dearer_price_raises_the_alarm(tmp_path: Path, factor: float, dearer: bool) -> None:
    place = new_root(tmp_path / "root")
    with Runtime.open(place) as runtime:
        _calls(runtime.ledger, 200, 0.001)
        changed = datetime.now(UTC).isoformat()
        _calls(runtime.ledger, 200, 0.001 * factor)
    done = run_remit("learn", "signals", "--since", changed, "--crossed", "--json", "--root", place)
    assert done.returncode == 0, done.stderr
    found = {
        (one["dimension"], one["name"]): one
        for one in json.loads(done.stdout)["signals"]
        if one["metric"] == "cost"
    }
    assert found.keys() == ({("model", "gemini"), ("route", "auto")} if dearer else set())
    for one in found.values():
        assert one["live"]["value"] / one["baseline"]["value"] == pytest.approx(factor, rel=0.1)


# -- Content that is erased while a prompt is searched, measured, proposed and adopted ------------


def erase(root: Path, exchange_id: str) -> None:
    done = run_remit("ledger", "erase", exchange_id, "--reason", "request 7", "--yes",
                     "--root", root)  # fmt: skip
    assert done.returncode == 0, done.stderr


def parted(root: Path, model: str) -> dict[str, bool]:
    """Exchanges on record, and whether each is held out."""
    with Runtime.open(root, model=model) as runtime:
        return held_out_sides(
            runtime.ledger, [one.id for one in runtime.ledger.query(event_type="EXCHANGE")]
        )


def test_during_the_search(answered: Path, provider: Scripted) -> None:
    known = parted(answered, MODEL)
    gone = [one for one, held_out in known.items() if not held_out][-1]
    with Runtime.open(answered, model=MODEL) as runtime:
        text = runtime.ledger.read(gone).metadata["prompt"][-1]["content"]

    def erasing(body: dict[str, Any]) -> str:
        if not provider.bodies[1:]:
            erase(answered, gone)
        return '{"tea": 1}' if "one JSON object" in json.dumps(body["messages"]) else "tea"

    provider.reply = erasing
    provider.bodies.clear()
    command = ("learn", "prompt", CONTRACT, "--schema", answered.parent / "schema.json",
               "--usd", 1, "--root", answered, "--json")  # fmt: skip
    done = run_remit(*command)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{gone}, which the search used, was erased during the search" in done.stderr
    again = json.loads(run_remit(*command).stdout)
    assert again["search"]["ended"] == "complete"
    assert again["held_out"]["replayed"] == sum(known.values())
    sent = [json.dumps(body["messages"]) for body in provider.bodies]
    assert not any(f"{text}" in one or "erased under" in one for one in sent)


def log(root: Path) -> dict[str, bool]:
    """Record 205 held-out exchanges and up to 40 others, each in a session of its own."""
    found: dict[str, bool] = {}
    number = 0
    with Runtime.open(root, flags={"budget.mode": "off"}) as runtime:
        while sum(found.values()) < 205:
            messages = [
                {"role": "system", "content": SYSTEM.partition("\n")[2].strip()},
                {"role": "user", "content": f"What does parcel {number} weigh?"},
            ]
            number += 1
            if not is_held_out(messages) and list(found.values()).count(False) == 40:
                continue
            asked = replace(request(messages, WEAK), session_id=f"SES-{number}")
            answer = runtime.gateway.route(asked)
            assert not answer.error_code, answer.error_message
            found[answer.exchange_entry_id] = is_held_out(messages)
    return found


class Interrupting(Reflecting):
    """Once a held-out exchange is asked with the rule, something happens first."""

    def __init__(self) -> None:
        super().__init__(Model(WEAK), RULE)
        self.then: Callable[[], None] | None = None

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        said = body["messages"][-1]["content"]
        held_out = [{"role": "system", "content": SYSTEM.partition("\n")[2].strip()},
                    {"role": "user", "content": said}]  # fmt: skip
        if self.then and RULE in json.dumps(body.get("system")) and is_held_out(held_out):
            then, self.then = self.then, None
            then()
        return super().__call__(body)


@pytest.mark.timeout(1200)  # Some 1,000 calls: more than 300 s on a busy machine.
def test_between_measuring_and_adoption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Interrupting()
    with world(tmp_path, monkeypatch, model) as root:
        known = log(root)
        held_out = [one for one in known if known[one]]
        learned = [one for one in known if not known[one]][-1]
        references = tmp_path / "references.json"
        references.write_text(json.dumps(dict.fromkeys(known, RIGHT)))

        def both() -> None:
            erase(root, learned)
            erase(root, held_out[-1])

        model.then = both
        command = (
            "learn", "prompt", WEIGH, "--usd", 1, "--references", references, "--json",
            "--reflect", f"anthropic/{WEAK}", "--root", root, "--propose", "--reason", "Units.",
        )  # fmt: skip
        done = run_remit(*command)
        assert (done.returncode, model.then) == (1, None), done.stderr
        assert f"The content of {learned}" in done.stderr, done.stdout
        assert "no proposals" in run_remit("learn", "proposals", "--root", root).stdout.lower()
        found = json.loads(run_remit(*command).stdout)
        assert found["held_out"]["replayed"] == len(held_out) - 1
        with Runtime.open(root) as runtime:
            proposal = Proposals(Root(root), runtime.ledger).get(found["proposal_id"])
            assert not {learned, held_out[-1]} & set(proposal.evidence)
        erase(root, held_out[0])
        adopted = run_remit("learn", "adopt", "last", "--reason", "Units.", "--root", root)
        assert (adopted.returncode, "is stale" in adopted.stderr) == (1, True), adopted.stderr
