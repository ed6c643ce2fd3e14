"""The operational loop: a contract version whose answers keep being rejected is set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit.contracts import ContractLoader
from remit.kernel.installation import InstalledFiles, shipped_file
from remit.ledger import LedgerEntry
from remit.runtime import Runtime
from tests.support.agents import Scripted, anthropic_runtime
from tests.support.packages import bring
from tests.support.roots import new_root
from tests.support.wire import Raw, message

CONTRACT = "PRC-GUIDE-001"
FLAGS = {"supervisor.max_retries": 0}
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


def _answer(body: dict[str, Any]) -> dict[str, Any]:
    return message(BAD if _is_new(body) else GOOD)


def _is_new(body: dict[str, Any]) -> bool:
    return TERSE in json.dumps(body)


def _signals(runtime: Runtime, session_id: str) -> list[LedgerEntry]:
    return list(runtime.ledger.query(session_id=session_id, event_type="SIGNAL_OBSERVED"))


def test_a_version_whose_answers_are_rejected_is_set_aside_until_the_session_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    _install(root, tmp_path, FIRST, LATER)
    with anthropic_runtime(root, monkeypatch, _answer, flags=FLAGS) as (runtime, _):
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


@pytest.mark.parametrize(
    "changes",
    [
        {"boundary": {"max_tokens": FIRST["boundary"]["max_tokens"] - 1}},
        {"boundary": {"model_id": "claude-cheap"}},
        {"input_schema": {"type": "object"}},
    ],
)
def test_no_version_that_allows_more_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    root = tmp_path / "root"
    later = {**LATER, **changes, "boundary": {**LATER["boundary"], **changes.get("boundary", {})}}
    _install(root, tmp_path, FIRST, later)
    with (
        anthropic_runtime(root, monkeypatch, _answer, flags=FLAGS) as (runtime, http),
        runtime.agent("guide", tools=[], contract=CONTRACT).session() as session,
    ):
        for turn in range(5):
            assert session.turn(f"How is it? {turn}").failed
        (signal,) = _signals(runtime, session.session_id)  # said once
        assert signal.metadata["instead"] == ""
        assert all(_is_new(call.body) for call in http.calls)


def test_a_contract_that_a_program_brings_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, own = tmp_path / "root", tmp_path / "own"
    _install(root, tmp_path, FIRST)
    (own / "contracts").mkdir(parents=True)
    (own / "contracts" / f"{CONTRACT}.json").write_text(json.dumps(LATER))
    with (
        anthropic_runtime(root, monkeypatch, _answer, flags=FLAGS) as (runtime, _),
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Any
) -> None:
    root = tmp_path / "root"
    _install(root, tmp_path, FIRST, LATER)
    with (
        anthropic_runtime(root, monkeypatch, reply, flags=FLAGS) as (runtime, _),
        runtime.agent("guide", tools=[], contract=CONTRACT).session() as session,
    ):
        for turn in range(4):
            assert session.turn(f"Something long {turn}").failed
        found = {signal.metadata["dimension"] for signal in _signals(runtime, session.session_id)}
        assert "contract" not in found


def test_retries_of_one_turn_and_a_callers_own_schema_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    _install(root, tmp_path, FIRST, LATER)
    flags = {"supervisor.max_retries": 4}
    with (
        anthropic_runtime(root, monkeypatch, _answer, flags=flags) as (runtime, http),
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
        scripted(answer, flags=FLAGS) as (runtime, _),
        runtime.agent("guide", tools=[], classify=True).session() as session,
    ):
        for turn in range(5):
            assert session.turn(f"How is it? {turn}").response == GOOD
        (signal,) = _signals(runtime, session.session_id)
        assert signal.metadata["name"].startswith("PRC-CLASSIFY-001@")
        failed = [runtime.ledger.read(one) for one in signal.metadata["evidence"]]
        assert [one.event_type for one in failed] == ["WO_FAILED"] * 3


def test_a_version_that_is_set_aside_or_a_pre_release_does_not_stand_in(tmp_path: Path) -> None:
    root = tmp_path / "root"
    versions = [{**FIRST, "version": version} for version in ("1.0.0", "1.0.1", "1.1.0-rc.1")]
    _install(root, tmp_path, *versions, LATER)
    contracts = ContractLoader(root / "HO1", installed=InstalledFiles(root))
    newest = contracts.load(CONTRACT)
    stands_in = [
        found and found.version
        for aside in ([], [f"{CONTRACT}@1.0.1"], [f"{CONTRACT}@1.0.1", f"{CONTRACT}@1.0.0"])
        for found in [contracts.in_place_of(newest, aside)]
    ]
    assert stands_in == ["1.0.1", "1.0.0", None]
    assert contracts.in_place_of(contracts.load(CONTRACT, "1.0.0"), []) is None
    (root / "HO1/prompt_packs/PRM-PLAIN-001.txt").write_text("changed since")
    assert contracts.in_place_of(newest, []) is None
