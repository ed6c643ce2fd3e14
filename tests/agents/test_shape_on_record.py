"""What shapes an agent is on record, and G3 lists what no package brought."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.agents.supervisor import DEFAULT_CRITERIA
from remit.agents.tools import Tool
from remit.contracts import ContractLoader
from remit.ledger import LedgerEntry
from remit.packages.gates import GateResult, check_gates
from remit.testing import ScriptedModel, ToolUse
from tests.support.agents import TEXT, Scripted, tools_only
from tests.support.processes import run_program
from tests.support.roots import new_root
from tests.support.wire import completion, message, serve, tool_use

_LOOK = Tool("look", "Look.", TEXT, lambda text: text, on_unknown="retry")
_CONTRACT = {
    "contract_id": "PRC-HOME-001",
    "version": "1.0.0",
    "prompt_pack_id": "PRM-HOME-001",
    "boundary": {"max_tokens": 10, "temperature": 0},
    "metadata": {"framework_id": "FMWK-KERNEL-001"},
}


def _g3(runtime: Runtime) -> GateResult:
    (result,) = check_gates(runtime.gate_context(), ["G3"], record=False, by="test").gates
    return result


def _own_folder(place: Path) -> Path:
    for path, text in (
        ("contracts/PRC-HOME-001.json", json.dumps(_CONTRACT)),
        ("prompt_packs/PRM-HOME-001.txt", "{{ user_input }}"),
    ):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    return place


def _starts(runtime: Runtime) -> list[LedgerEntry]:
    return runtime.ledger.read_by_event_type("SESSION_START")


def test_a_program_states_its_tools_and_passes(scripted: Scripted, tmp_path: Path) -> None:
    own = _own_folder(tmp_path / "own")
    text = "You sell tea to Ann Miller."
    script = tools_only(tool_use("look", {"text": "a"})), message("Seen.")
    with scripted(*script) as (runtime, _):
        agent = runtime.agent(
            "seller", instructions=text, tools=[_LOOK], contract="PRC-HOME-001", contracts=own,
            turn_limit=4,
        )  # fmt: skip
        agent.run("look")
        (start,) = _starts(runtime)
        (change,) = runtime.ledger.read_by_submission("settings")
        record = runtime.ledger.read_record(start.id)
        exchange = runtime.ledger.read_by_event_type("EXCHANGE")[0]
        told = _g3(runtime)
    loader = ContractLoader(own)
    assert start.metadata["own_tools"] == {"look": _LOOK.digest}
    assert start.metadata["own_contracts"] == {
        "PRC-HOME-001": {
            "version": "1.0.0",
            "sha256": loader.load("PRC-HOME-001").digest,
            "prompt_pack_id": "PRM-HOME-001",
            "prompt_pack_sha256": loader.load_pack("PRM-HOME-001").digest,
        }
    }
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert start.metadata["instructions"] == {"sha256": digest, "text": text}
    assert digest.encode() not in record  # it would give a short text away after an erasure
    assert b"Ann" not in record
    assert len(record) < 2000
    assert start.metadata["overrides"]["worker.turn_limit"] == 4
    assert start.metadata["overrides"]["gateway.retry_base_ms"] == 1
    assert change.metadata["overrides"] == {"gateway.retry_base_ms": 1}
    assert change.metadata["settings"]["gateway.retry_base_ms"][1] == 1
    assert change.metadata["settings_sha256"] != start.metadata["settings_sha256"]
    assert exchange.metadata["framework_id"] == ""
    assert told.passed, told.errors
    for named in ("the tool look", "the contract PRC-HOME-001", "the instructions of seller",
                  "gateway.retry_base_ms", change.id):  # fmt: skip
        assert named in told.message


def test_worker_entries_name_contracts_or_agents_class(scripted: Scripted, tmp_path: Path) -> None:
    own = _own_folder(tmp_path / "own")
    classed = {**_CONTRACT, "contract_id": "PRC-CLASSED-001", "agent_class": "KERNEL.semantic"}
    (own / "contracts/PRC-CLASSED-001.json").write_text(json.dumps(classed))
    with scripted(message("Hi.")) as (runtime, _):
        found = {}
        for contract_id in ("PRC-HOME-001", "PRC-CLASSED-001"):
            runtime.agent("a", contract=contract_id, contracts=own).run("hello")
            entries = runtime.ledger.query(tier="ho1", event_type="WO_COMPLETED", order="desc")
            found[contract_id] = next(entries).metadata["provenance"]["agent_class"]
    assert found == {"PRC-HOME-001": "RESIDENT", "PRC-CLASSED-001": "KERNEL.semantic"}


def test_a_provider_of_the_program_is_stated_by_its_sessions_and_passes_the_gates(
    tmp_path: Path,
) -> None:
    models = {"scripted": ScriptedModel("Hello."), "other": ScriptedModel("Hi.")}
    with Runtime.open(new_root(tmp_path / "root"), providers=models) as runtime:
        runtime.agent("a").run("hello")
        (start,) = _starts(runtime)
        assert start.metadata["own_providers"] == dict.fromkeys(
            ("scripted", "other"), "remit.testing.ScriptedModel"
        )
        assert _g3(runtime).passed
        assert "the provider scripted" in _g3(runtime).message
    done = run_program("-m", "remit", "gate", "check", "--all", "--enforce",
                       "--root", str(tmp_path / "root"), environment=os.environ)  # fmt: skip
    assert "8 of 8 gates pass" in done.stdout


def test_a_contracts_value_that_a_model_does_not_take_is_recorded(tmp_path: Path) -> None:
    with serve(completion("Hi.")) as server:
        flags = {
            "providers.fake.kind": "openai", "providers.fake.base_url": server.url,
            "providers.fake.default_model": "o3-mini", "model.default": "fake",
            "providers.fake.max_completion_tokens_models": ["o3"],
        }  # fmt: skip
        with Runtime.open(new_root(tmp_path / "root"), flags=flags) as runtime:
            runtime.agent("a").run("hello")
            (exchange,) = runtime.ledger.read_by_event_type("EXCHANGE")
        (call,) = server.calls
    assert "temperature" not in call.body
    (change,) = exchange.metadata["changed"]
    assert change["path"] == "/temperature"


def _without(*keys: str) -> Any:
    """Sessions that do not say all of what shapes their agent."""

    def start(self: Any, shape: Any = None) -> LedgerEntry:
        left = {key: value for key, value in (shape or {}).items() if key not in keys}
        return self._entry("SESSION_START", "STARTED", "Session started", **left)

    return start


@pytest.mark.parametrize(
    ("hidden", "problem"),
    [
        ("own_tools", "tool look was used"),
        ("own_contracts", "contract PRC-HOME-001"),
        ("settings_sha256", "contract PRC-HOME-001"),
        ("own_providers", "model scripted/scripted was used"),
    ],
)
def test_what_is_used_and_not_on_record_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str, problem: str
) -> None:
    monkeypatch.setattr("remit.agents.sessions.SessionManager.start_entry", _without(hidden))
    own = _own_folder(tmp_path / "own")
    models = {"scripted": ScriptedModel(ToolUse("look", {"text": "a"}), "Seen.")}
    with Runtime.open(new_root(tmp_path / "root"), providers=models) as runtime:
        runtime.agent("a", tools=[_LOOK], contract="PRC-HOME-001", contracts=own).run("look")
        told = _g3(runtime)
    assert not told.passed
    assert problem in " ".join(told.errors)


def test_a_gate_without_checks_and_a_limit_above_its_ceiling_fail(scripted: Scripted) -> None:
    with scripted(message("Hi.")) as (runtime, _):
        off = dict.fromkeys(DEFAULT_CRITERIA, False)
        runtime.agent("lax", acceptance=off).run("hello")
        runtime.agent("long", turn_limit=500).run("hello")
        runtime.agent("strict", acceptance={**off, "min_chars": 2}).run("hello")
        told = _g3(runtime)
        assert len(told.errors) == 2
        assert "The agent lax" in told.errors[1] or "The agent lax" in told.errors[0]
        assert "worker.turn_limit exceeds the ceiling of FMWK-RUNTIME-001" in " ".join(told.errors)
        runtime.agent("lax").run("hello")
        runtime.agent("long", turn_limit=5).run("hello")
        assert _g3(runtime).passed  # as they are now


def test_settings_are_on_record_when_they_come_into_force_and_secrets_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = new_root(tmp_path / "root")

    def opened(by: str, **flags: Any) -> list[LedgerEntry]:
        named = {key.replace("__", "."): value for key, value in flags.items()}
        with Runtime.open(root, flags=named, by=by) as runtime:
            assert _g3(runtime).passed
            return runtime.ledger.read_by_submission("settings")

    with Runtime.open(root) as runtime:  # as packages brought them
        assert runtime.ledger.read_by_submission("settings") == []
    opened("ann", supervisor__max_retries=3, providers__openai__api_key="sk-very-secret-1")
    first, *more = opened(
        "ann", supervisor__max_retries=3, providers__openai__api_key="sk-very-secret-1"
    )
    assert not more  # nothing differs
    assert first.metadata["by"] == "ann"
    assert first.metadata["settings"] == {
        "providers.openai.api_key": ["", "**********"], "supervisor.max_retries": [1, 3],
    }  # fmt: skip
    *_, second = opened("bob", supervisor__max_retries=2)
    assert second.metadata["by"] == "bob"
    assert second.metadata["settings"] == {
        "providers.openai.api_key": ["**********", ""], "supervisor.max_retries": [3, 2],
    }  # fmt: skip
    *_, third = opened("bob")
    assert third.metadata["settings"] == {"supervisor.max_retries": [2, 1]}
    assert third.metadata["overrides"] == {}
    assert len(opened("bob")) == 3
    with Runtime.open(root) as runtime:
        assert "very-secret" not in repr(list(runtime.ledger.query()))


def test_settings_not_on_record_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.runtime.runtime.record_settings", lambda *_, **__: "")
    root = new_root(tmp_path / "root")
    with Runtime.open(root, flags={"supervisor.max_retries": 3}) as runtime:
        told = _g3(runtime)
    assert not told.passed
    assert "not recorded: supervisor.max_retries" in told.errors[0]
