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
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.agents.sessions import Marks
from remit.agents.supervisor.operational_loop import Exclusions, Outcome, failing, is_version_of
from remit.contracts import ContractLoader
from remit.gateway.auth import Identity
from remit.kernel.exchange import RouteOutcome
from remit.kernel.installed_files import InstalledFiles, shipped_file
from remit.learning import SignalPolicy
from remit.ledger import LedgerClient, LedgerEntry, LedgerError
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


def test_without_a_next_best_nothing_changes_and_it_is_said_once(scripted: Scripted) -> None:
    flags = {**FLAGS, "gateway.fallbacks": {}, "supervisor.max_retries": 0}
    with scripted(_answer, flags=flags) as (runtime, http):
        with runtime.agent("guide", tools=[], model="claude-ill").session() as session:
            for _ in range(5):
                assert session.turn("Are you there?").error_code == "SERVER_ERROR"
            (signal,) = _signals(runtime, session.session_id)
        assert signal.metadata["instead"] == ""
        assert {call.body["model"] for call in http.calls} == {"claude-ill"}
        assert len(http.calls) == 5


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


@pytest.mark.parametrize("code", ["CONTEXT_LENGTH", "CANCELLED", "BUDGET_EXHAUSTED", "BAD_REQUEST"])
def test_what_a_request_is_refused_for_sets_no_model_aside(ledger: LedgerClient, code: str) -> None:
    held: list[LedgerEntry] = []
    _fail(ledger, error_code=code)
    _aside(ledger, held).observe("WO-1", "model")
    assert held == []


@pytest.mark.parametrize("more", [{"key_id": "key-1"}, {"wire": "openai_chat"}])
def test_calls_of_a_gateways_client_in_the_sessions_name_do_not_count(
    ledger: LedgerClient, more: dict[str, str]
) -> None:
    held: list[LedgerEntry] = []
    _fail(ledger, error_code="SERVER_ERROR", **more)
    _aside(ledger, held).observe("WO-1", "model")
    assert held == []


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


@pytest.mark.parametrize(("began", "counted"), [({}, 1), ({"time_to_first_token_ms": 9.0}, 0)])
def test_a_timeout_of_an_answer_that_had_begun_does_not_count(
    ledger: LedgerClient, began: dict[str, float], counted: int
) -> None:
    held: list[LedgerEntry] = []
    _fail(ledger, error_code="TIMEOUT", **began)
    _aside(ledger, held).observe("WO-1", "model")
    assert len(held) == counted


def test_a_dated_version_of_the_model_is_its_answer_and_another_model_is_not() -> None:
    failed = [Outcome("LED-1", "p/gpt-4o", f"turn {turn}", True) for turn in range(3)]
    for name, ends in (("p/gpt-4o-2024-08-06", True), ("p/gpt-4o-mini", False)):
        outcomes = [Outcome("LED-2", name, "turn 4", False), *failed]
        assert (not failing(outcomes, 3, is_version_of)) is ends


def test_names_that_could_not_be_read_are_read_again(ledger: LedgerClient, tmp_path: Path) -> None:
    def exclude(name: str) -> Marks:
        data = {"session_id": "SES-1", "tier": "ho2", "kind": "set_aside", "name": name}
        written = ledger.write(LedgerEntry("SIGNAL_OBSERVED", "WO-1", "X", "", metadata=data))
        return Marks(None, None, None, None, None, signal=int(written[4:], 16))

    journal = _journal(ledger, [])
    aside = Exclusions(journal, {}, lambda: 3)
    aside.refresh(exclude("p/a"))
    assert aside.names == ("p/a",)
    latest = exclude("p/b")
    with LedgerClient(tmp_path / "closed.db") as closed:
        journal.ledger = closed
    with pytest.raises(LedgerError):
        aside.refresh(latest)
    assert aside.names == ("p/a",)
    journal.ledger = ledger
    aside.refresh(latest)
    assert aside.names == ("p/a", "p/b")


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


_TRIED = st.builds(
    Outcome,
    st.just("LED-1"),
    st.sampled_from(["p/a", "p/b"]),
    st.sampled_from(["turn 1", "turn 2", "turn 3", "turn 4"]),
    st.sampled_from([True, False, None]),
)


@given(st.lists(_TRIED, max_size=30), st.integers(1, 4))
def test_own_failures_since_the_last_success_count(outcomes: list[Outcome], after: int) -> None:
    found = failing(outcomes, after)
    for name in ("p/a", "p/b"):
        own = [one for one in outcomes if one.name == name]
        successes = [at for at, one in enumerate(own) if one.failed is False]
        failed = [one for one in (own[: successes[0]] if successes else own) if one.failed]
        enough = len({one.turn for one in failed}) >= after
        assert len(found.get(name, [])) == (len(failed) if enough else 0)


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


def test_a_contract_that_a_program_brings_stays(scripted: Scripted, tmp_path: Path) -> None:
    root, own = tmp_path / "root", tmp_path / "own"
    _install(root, tmp_path, FIRST)
    (own / "contracts").mkdir(parents=True)
    (own / "contracts" / f"{CONTRACT}.json").write_text(json.dumps(LATER))
    with (
        scripted(_answer_by_version, flags=ONE_ATTEMPT) as (runtime, _),
        runtime.agent("guide", tools=[], contract=CONTRACT, contracts=own).session() as session,
    ):
        for turn in range(4):
            assert session.turn(f"How is it? {turn}").failed
        (signal,) = _signals(runtime, session.session_id)
        assert (signal.metadata["name"], signal.metadata["instead"]) == (f"{CONTRACT}@1.1.0", "")


@pytest.mark.parametrize(
    "reply",
    [
        {**message("Error: cut"), "stop_reason": "max_tokens"},
        Raw(b'{"error": {"message": "prompt is too long"}}', status=400),
        Raw(status=500),
    ],
)
def test_what_a_request_or_a_model_brings_about_sets_no_version_aside(
    scripted: Scripted, tmp_path: Path, reply: Any
) -> None:
    root = tmp_path / "root"
    _install(root, tmp_path, FIRST, LATER)
    with (
        scripted(reply, flags=ONE_ATTEMPT) as (runtime, _),
        runtime.agent("guide", tools=[], contract=CONTRACT).session() as session,
    ):
        for turn in range(4):
            assert session.turn(f"Something long {turn}").failed
        found = {signal.metadata["dimension"] for signal in _signals(runtime, session.session_id)}
        assert "contract" not in found


def test_retries_and_a_callers_own_schema_do_not_count(scripted: Scripted, tmp_path: Path) -> None:
    root = tmp_path / "root"
    _install(root, tmp_path, FIRST, LATER)
    flags = {"supervisor.max_retries": 4}
    with (
        scripted(_answer_by_version, flags=flags) as (runtime, http),
        runtime.agent("guide", tools=[], contract=CONTRACT).session() as session,
    ):
        assert session.turn("Say nothing good.").failed
        assert len(http.calls) == 5
        for turn in range(3):
            assert session.turn(f"A number? {turn}", output_type=int).failed
        assert _signals(runtime, session.session_id) == []


def test_a_schema_that_answers_do_not_fit_sets_its_contract_aside_once(scripted: Scripted) -> None:
    """Of a step beside the answer, which costs no turn; there is one version of it alone."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        return message("no JSON" if body.get("output_config") else GOOD)

    with (
        scripted(answer, flags=ONE_ATTEMPT) as (runtime, _),
        runtime.agent("guide", tools=[], classify=True).session() as session,
    ):
        for turn in range(5):
            assert session.turn(f"How is it? {turn}").response == GOOD
        (signal,) = _signals(runtime, session.session_id)
        assert signal.metadata["name"].startswith("PRC-CLASSIFY-001@")
        failed = [runtime.ledger.read(one) for one in signal.metadata["evidence"]]
        assert [one.event_type for one in failed] == ["WO_FAILED"] * 3


def _loader(tmp_path: Path, *versions: dict[str, Any]) -> ContractLoader:
    root = tmp_path / "root"
    _install(root, tmp_path, *versions)
    return ContractLoader(root / "HO1", installed=InstalledFiles(root))


def test_a_version_that_is_set_aside_or_a_pre_release_does_not_stand_in(tmp_path: Path) -> None:
    versions = [{**FIRST, "version": version} for version in ("1.0.0", "1.0.1", "1.1.0-rc.1")]
    contracts = _loader(tmp_path, *versions, LATER)
    newest = contracts.load(CONTRACT)
    stands_in = [
        found and found.version
        for aside in ([], [f"{CONTRACT}@1.0.1"], [f"{CONTRACT}@1.0.1", f"{CONTRACT}@1.0.0"])
        for found in [contracts.in_place_of(newest, aside)]
    ]
    assert stands_in == ["1.0.1", "1.0.0", None]
    assert contracts.in_place_of(contracts.load(CONTRACT, "1.0.0"), []) is None
    (tmp_path / "root/HO1/prompt_packs/PRM-PLAIN-001.txt").write_text("changed since")
    assert contracts.in_place_of(newest, []) is None


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
