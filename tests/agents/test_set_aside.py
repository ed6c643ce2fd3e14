"""The operational loop: a model that keeps failing is set aside until its session ends."""

from __future__ import annotations

import asyncio
import functools
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from remit.agents.sessions import Marks
from remit.agents.supervisor.operational_loop import Exclusions, Outcome, failing, is_version_of
from remit.contracts import ContractLoader
from remit.gateway.auth import Identity
from remit.kernel.exchange import RouteOutcome
from remit.kernel.installed_files import InstalledFiles, shipped_file
from remit.learning import SignalPolicy
from remit.ledger import LedgerClient, LedgerEntry
from remit.routing import explain, find_decision, replay
from remit.runtime import Runtime
from tests.support.agents import Scripted
from tests.support.packages import bring
from tests.support.requests import prompt_request
from tests.support.roots import new_root
from tests.support.wire import Raw, WireServer, message

FLAGS = {
    "gateway.max_retries": 0,
    "gateway.failure_threshold": 1000,
    "gateway.fallbacks": {"claude-ill": ["claude-well"]},
}


def _answer(body: dict[str, Any]) -> Any:
    return Raw(status=500) if body["model"] == "claude-ill" else message("Yes.")


def _asked(http: WireServer, session: Any) -> list[str]:
    """The models that are asked in the session's next turn."""
    http.calls.clear()
    assert session.turn("Are you there?").response == "Yes."
    return [call.body["model"] for call in http.calls]


def _signals(runtime: Runtime, session_id: str) -> list[Any]:
    return list(runtime.ledger.query(session_id=session_id, event_type="SIGNAL_OBSERVED"))


def _journal(ledger: LedgerClient, held: list[LedgerEntry]) -> Any:
    return SimpleNamespace(
        ledger=ledger,
        session_id="SES-1",
        hold=held.append,
        entry=lambda event, order, /, **data: LedgerEntry(
            event, order, "OBSERVED", "", metadata=data
        ),
    )


def _aside(ledger: LedgerClient, held: list[LedgerEntry]) -> Exclusions:
    policy = SignalPolicy.from_json(shipped_file("PKG-LEARNING-001", "HOT/documents/signals.json"))
    return Exclusions(
        _journal(ledger, held), {"model": lambda *_: ["p/b"]}, lambda: policy.set_aside_after
    )


def _fail(ledger: LedgerClient, **more: Any) -> None:
    for _ in range(3):
        data = {"session_id": "SES-1", "provider_id": "p", "model_id": "a", "outcome": "error"}
        data |= {"tier": "ho1", **more}
        ledger.write(LedgerEntry("EXCHANGE", "PRC-A-001", "ERROR", "failed", metadata=data))


def test_a_model_that_keeps_failing_is_set_aside_until_its_session_ends(scripted: Scripted) -> None:
    with scripted(_answer, flags=FLAGS) as (runtime, http):
        asked = functools.partial(_asked, http)
        agent = runtime.agent("guide", tools=[], model="claude-ill")
        with agent.session() as session:
            both = ["claude-ill", "claude-well"]
            assert [asked(session) for _ in range(3)] == [both] * 3
            (signal,) = _signals(runtime, session.session_id)
            assert signal.metadata["name"] == "anthropic/claude-ill"
            assert signal.metadata["instead"] == "anthropic/claude-well"
            failed = [runtime.ledger.read(one) for one in signal.metadata["evidence"]]
            assert [one.metadata["error_code"] for one in failed] == ["SERVER_ERROR"] * 3
            assert asked(session) == ["claude-well"]
            # Another process has only the record.
            assert asked(agent.session(session.session_id)) == ["claude-well"]
            last = list(runtime.ledger.query(event_type="EXCHANGE"))[-1]
            passed = {"model_id": "claude-ill", "error_code": "SET_ASIDE"}
            assert last.metadata["fallback_from"] == [passed]  # so that it is tainted
            with agent.session() as other:
                assert asked(other) == both
        assert asked(agent.session(session.session_id)) == both  # it had ended
        assert len(_signals(runtime, session.session_id)) == 1


def test_a_route_leaves_out_what_its_session_has_set_aside_and_replays(scripted: Scripted) -> None:
    models = {
        name: {
            "provider": "anthropic", "served_as": f"claude-{name}",
            "abilities": {"general": ability},
            "input_usd_per_million": 1.0, "output_usd_per_million": 1.0,
        }
        for name, ability in (("ill", 90), ("well", 50))
    }  # fmt: skip
    flags = {
        **FLAGS, "gateway.fallbacks": {"ill": ["claude-spare"]}, "routing.models": models,
        "routing.routes": {"auto": {"models": ["ill", "well"]}}, "routing.reliability_decisions": 0,
    }  # fmt: skip
    with scripted(_answer, flags=flags) as (runtime, http):
        asked = functools.partial(_asked, http)
        agent = runtime.agent("guide", tools=[], model="auto")
        with agent.session() as session, agent.session() as other:
            both = ["claude-ill", "claude-well"]
            assert [asked(session) for _ in range(3)] == [both] * 3
            (signal,) = _signals(runtime, session.session_id)
            assert signal.metadata["name"] == "anthropic/claude-ill"
            assert signal.metadata["instead"] == "anthropic/claude-spare"  # by the registry's name
            assert asked(session) == ["claude-well"]
            last = list(runtime.ledger.query(event_type="EXCHANGE"))[-1]
            decision = explain(runtime.ledger, last.metadata["decision_id"])
            assert decision["candidates_considered"] == ["well"]
            assert replay(find_decision(runtime.ledger, decision["decision_id"]))["agrees"]
            assert asked(agent.session(session.session_id)) == ["claude-well"]
            assert asked(other) == both


@pytest.mark.parametrize(
    ("more", "counted"),
    [
        ({}, 1), ({"error_code": "TIMEOUT"}, 1), ({"key_id": "key-1"}, 0),
        ({"wire": "openai_chat"}, 0), ({"error_code": "CONTEXT_LENGTH"}, 0),
        ({"error_code": "CANCELLED"}, 0), ({"error_code": "BUDGET_EXHAUSTED"}, 0),
        ({"error_code": "BAD_REQUEST"}, 0),
        ({"error_code": "TIMEOUT", "time_to_first_token_ms": 9.0}, 0),
    ],
)  # fmt: skip
def test_only_failures_of_the_model_itself_set_it_aside(
    ledger: LedgerClient, more: dict[str, Any], counted: int
) -> None:
    held: list[LedgerEntry] = []
    _fail(ledger, **{"error_code": "SERVER_ERROR", **more})
    _aside(ledger, held).observe("WO-1", "model")
    assert len(held) == counted


def test_one_message_and_its_retries_set_no_model_aside(scripted: Scripted) -> None:
    flags = {**FLAGS, "gateway.fallbacks": {}, "supervisor.max_retries": 5}
    with (
        scripted(_answer, flags=flags) as (runtime, http),
        runtime.agent("guide", tools=[], model="claude-ill").session() as session,
    ):
        assert session.turn("A prompt that no server survives.").error_code == "SERVER_ERROR"
        assert len(http.calls) == 6
        assert _signals(runtime, session.session_id) == []


def test_a_key_that_may_not_use_the_next_best_is_not_given_it(scripted: Scripted) -> None:
    request = prompt_request(model_id="claude-ill", set_aside=("anthropic/claude-ill",))
    identity = Identity("key", "agent", models=("claude-ill",))
    with scripted(_answer, flags=FLAGS) as (runtime, http):
        response = asyncio.run(runtime.gateway.aroute(request, identity=identity))
        assert response.outcome is not RouteOutcome.SUCCESS
        assert "claude-well" not in {call.body["model"] for call in http.calls}


def test_a_dated_version_of_the_model_is_its_answer_and_another_model_is_not() -> None:
    failed = [Outcome("LED-1", "p/gpt-4o", f"turn {turn}", True) for turn in range(3)]
    for name, ends in (("p/gpt-4o-2024-08-06", True), ("p/gpt-4o-mini", False)):
        outcomes = [Outcome("LED-2", name, "turn 4", False), *failed]
        assert (not failing(outcomes, 3, is_version_of)) is ends


class _Process:
    """One process at work on the session: it has its own state, and the record."""

    def __init__(self, ledger: LedgerClient) -> None:
        self.ledger, self.held = ledger, []  # type: ignore[var-annotated]
        self.aside = _aside(ledger, self.held)

    def refresh(self) -> tuple[str, ...]:
        """What is set aside, by the record as it is."""
        seqs = {
            event: max(
                (int(e.id[4:], 16) for e in self.ledger.query(event_type=event)), default=None
            )
            for event in ("SIGNAL_OBSERVED", "SESSION_END")
        }
        self.aside.refresh(Marks(None, None, None, None, None, *seqs.values()))
        return self.aside.names

    def turn(self, number: int, failed: bool, writes: bool) -> None:
        """A turn with one exchange; whether it lives to write what it sets aside."""
        self.refresh()
        order = f"WO-SES-1-{number:03d}"
        told = {"provenance": {"session_id": "SES-1"}, "scope": {"tier": "ho2"}}
        plan = {**told, "turn_number": number, "constraints": {}}
        self.ledger.write(LedgerEntry("WO_PLANNED", order, "WO_PLANNED", "", metadata=plan))
        data = {"session_id": "SES-1", "provider_id": "p", "model_id": "a", "work_order_id": order}
        data |= (
            {"outcome": "error", "error_code": "SERVER_ERROR"} if failed else {"outcome": "success"}
        )
        self.ledger.write(LedgerEntry("EXCHANGE", "PRC-A-001", "X", "", metadata=data))
        self.held.clear()
        self.aside.observe(order, "model")
        for entry in self.held if writes else ():
            entry.metadata |= told
            self.ledger.write(entry)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fails", "fails", "fails", "well", "end", "killed"]),
            st.integers(0, 1),
        ),
        max_size=14,
    )
)
def test_whichever_process_goes_on_has_what_the_record_says(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder, LedgerClient(f"{folder}/ledger.db") as ledger:
        processes = [_Process(ledger), _Process(ledger)]
        run, is_aside, signals = 0, False, 0
        for number, (step, which) in enumerate(steps):
            if step == "end":
                data = {"provenance": {"session_id": "SES-1"}, "scope": {"tier": "ho2"}}
                ledger.write(LedgerEntry("SESSION_END", "SES-1", "X", "", metadata=data))
                run, is_aside = 0, False
            else:
                processes[which].turn(number, step != "well", step != "killed")
                run = 0 if step == "well" else run + 1
                if step == "fails" and run >= 3 and not is_aside:
                    is_aside, signals = True, signals + 1
            expected = ("p/a",) if is_aside else ()
            assert [one.refresh() for one in (*processes, _Process(ledger))] == [expected] * 3
        assert len(list(ledger.query(event_type="SIGNAL_OBSERVED"))) == signals


# -- The operational loop: a contract version whose answers keep being rejected is set aside -----


CONTRACT = "PRC-GUIDE-001"
ONE_ATTEMPT = {"supervisor.max_retries": 0}
FOLDER = "HO1/contracts"
FIRST = {
    **json.loads(shipped_file("PKG-HO1-EXECUTOR-001", f"{FOLDER}/PRC-EXECUTE-001.json")),
    "contract_id": CONTRACT,
    "version": "1.0.0",
    "prompt_pack_id": "PRM-PLAIN-001",
    "examples": [{"input": {"user_input": "hello"}, "renders": ["hello"]}],
}
LATER = {**FIRST, "version": "1.1.0", "prompt_pack_id": "PRM-TERSE-001"}
TERSE = "Be terse."
PACKS = {"PRM-PLAIN-001": "Answer.", "PRM-TERSE-001": TERSE}
BAD, GOOD = "Error: I could not.", "All is well."


def _install(root: Path, scratch: Path, *versions: dict[str, Any]) -> None:
    """A root with versions of the contract, and their prompts."""
    new_root(root)
    files = {
        f"{FOLDER}/{CONTRACT}@{version['version']}.json": json.dumps(version).encode()
        for version in versions
    }
    for name, text in PACKS.items():
        files[f"HO1/prompt_packs/{name}.txt"] = (
            f"[system]\n{text}\n[user]\n{{{{user_input}}}}\n".encode()
        )
    bring(root, scratch, files)


def _answer_by_version(body: dict[str, Any]) -> dict[str, Any]:
    return message(BAD if _is_new(body) else GOOD)


def _is_new(body: dict[str, Any]) -> bool:
    return TERSE in json.dumps(body)


def test_a_version_whose_answers_are_rejected_is_set_aside_until_the_session_ends(
    scripted: Scripted, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    _install(root, tmp_path, FIRST, LATER)
    with scripted(_answer_by_version, flags=ONE_ATTEMPT) as (runtime, _):
        agent = runtime.agent("guide", tools=[], contract=CONTRACT)
        with agent.session() as session:
            rejected = [session.turn(f"How is it? {turn}").failed for turn in range(3)]
            assert rejected == [True] * 3
            (signal,) = _signals(runtime, session.session_id)
            data = signal.metadata
            assert (data["dimension"], data["name"]) == ("contract", f"{CONTRACT}@1.1.0")
            assert data["instead"] == f"{CONTRACT}@1.0.0"
            gates = [runtime.ledger.read(one) for one in data["evidence"]]
            assert [gate.metadata["verdict"] for gate in gates] == ["reject"] * 3
            assert session.turn("And now?").response == GOOD
            last = list(runtime.ledger.query(event_type="EXCHANGE"))[-1]
            assert last.metadata["contract_version"] == "1.0.0"
            assert agent.session(session.session_id).turn("Another process?").response == GOOD
            with agent.session() as other:
                assert other.turn("Another session?").failed
        assert agent.session(session.session_id).turn("It had ended?").failed
        assert len(_signals(runtime, session.session_id)) == 1


def _loader(tmp_path: Path, *versions: dict[str, Any]) -> ContractLoader:
    root = tmp_path / "root"
    _install(root, tmp_path, *versions)
    return ContractLoader(root / "HO1", installed=InstalledFiles(root))


@pytest.mark.parametrize(
    "changes",
    [
        {"boundary": {"max_tokens": FIRST["boundary"]["max_tokens"] - 1}},
        {"boundary": {"model_id": "claude-cheap"}},
        {"input_schema": {"type": "object"}},
    ],
)
def test_no_version_that_allows_more_stands_in(tmp_path: Path, changes: dict[str, Any]) -> None:
    later = {**LATER, **changes, "boundary": {**LATER["boundary"], **changes.get("boundary", {})}}
    contracts = _loader(tmp_path, FIRST, later)
    assert contracts.in_place_of(contracts.load(CONTRACT), []) is None
