"""A contract of a folder that a program brings: nothing is learned of it, and that is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remit import Runtime
from remit.gateway.auth import Identity
from remit.kernel.errors import InvalidInputError
from remit.learning.proposals import Change, Learner
from tests.learning.conftest import MODEL
from tests.learning.proposals.conftest import gain
from tests.support.commands import run_remit
from tests.support.scripted import Scripted

CONTRACT = "PRC-GREET-001"


def folder(place: Path) -> Path:
    for name in ("contracts", "prompt_packs"):
        (place / name).mkdir(parents=True)
    contract = {
        "contract_id": CONTRACT, "version": "1.0.0", "prompt_pack_id": "PRM-GREET-001",
        "agent_class": "RESIDENT", "tier": "ho1", "boundary": {"max_tokens": 50, "temperature": 0},
    }  # fmt: skip
    (place / "contracts" / f"{CONTRACT}.json").write_text(json.dumps(contract))
    text = "[system]\nGreet.\n[history]\n[user]\n{{ user_input }}\n"
    (place / "prompt_packs" / "PRM-GREET-001.txt").write_text(text)
    return place


def test_nothing_is_learned_of_it(tmp_path: Path, provider: Scripted) -> None:
    root = provider.root(tmp_path / "root")
    with Runtime.open(root, model=MODEL) as runtime:
        agent = runtime.agent("greeter", contract=CONTRACT, contracts=folder(tmp_path / "own"))
        with agent.session() as session:
            session.turn("Hello.")
        asked = [one.id for one in runtime.ledger.query(event_type="EXCHANGE")]
        learner = Learner(
            runtime.root, runtime.ledger, runtime.loaded, Identity("otto", "operator")
        )
        change = Change("prompt", contract_id=CONTRACT, additions=["Be brief."])
        with pytest.raises(InvalidInputError, match="is of no package"):
            learner.propose(change, evidence=asked, predicted=gain(), replay={}, reason="Why.")
        before = runtime.ledger.count()
    provider.bodies.clear()
    (tmp_path / "change.toml").write_text('kind = "prompt"\nadditions = ["Be brief."]\n')
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    common = ("--usd", 1, "--schema", tmp_path / "schema.json", "--root", root)
    for command in (
        ("learn", "prompt", CONTRACT, *common),
        ("learn", "replay", "--contract", CONTRACT, "--change", tmp_path / "change.toml", *common),
        ("learn", "replay", "--contract", CONTRACT, "--model", "gpt-4o", *common),
    ):
        done = run_remit(*command)
        assert (done.returncode, "of no package" in done.stderr) == (2, True), done.stderr
        assert "remit package new" in done.stderr
    unknown = run_remit("learn", "prompt", "PRC-NONE-001", *common)
    assert "'PRC-NONE-001' is not in" in unknown.stderr
    with Runtime.open(root, model=MODEL) as runtime:
        assert runtime.ledger.count() == before
    assert provider.bodies == []
