"""A package of one's own takes over nothing, reads no other session, and stays in its bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import NotFoundError
from remit.kernel.installed_files import InstalledFiles
from remit.ledger import LedgerClient
from remit.packages import AgentDocument, ManifestError, PackageError
from remit.runtime.packaged_agents import packaged_agent
from tests.packages.hostile import Stage, remit as command
from tests.packages.install.world import opened, tree
from tests.support.packages import archive_of, manifest_of

AGENT = "HO2/agents/mine.json"
CONTRACT = "HO1/contracts/PRC-MINE-001.json"
PACK = "HO1/prompt_packs/PRM-MINE-001.txt"
BUDGETS = {"token_budget": 1000, "usd_budget": "0.10"}
HAIKU = "anthropic/claude-haiku-4-5"
DEFAULT = ("local", "tiny")


def files(
    agent: Mapping[str, Any] | None = None, contract: Mapping[str, Any] | None = None
) -> dict[str, bytes]:
    """All files of a package of an agent; with what the arguments say besides."""
    return {
        AGENT: json.dumps(
            {"agent_id": "mine", "title": "Mine", "contract_id": "PRC-MINE-001", **(agent or {})}
        ).encode(),
        CONTRACT: json.dumps(
            {
                "contract_id": "PRC-MINE-001",
                "version": "1.0.0",
                "prompt_pack_id": "PRM-MINE-001",
                "boundary": {"max_tokens": 10, "temperature": 0},
                "examples": [{"input": {"user_input": "x"}, "renders": ["x"]}],
                **(contract or {}),
            }
        ).encode(),
        PACK: b"{{ user_input }}",
    }


def refused(stage: Stage, content: dict[str, bytes], **changes: Any) -> str:
    """What is said when the package is not installed; nothing of it is."""
    before = tree(stage.root)
    archive = stage.pack(content, **changes)
    exit_code, error, _ = command(stage.root, ["install", archive, "--dev", "--approve"])
    assert exit_code
    assert isinstance(error, PackageError)
    assert error.code == "gate_failed"
    assert error.next_step
    assert tree(stage.root) == before
    return str(error.message)


def fixed(**model: str) -> dict[str, Any]:
    return {"boundary": {"max_tokens": 10, "temperature": 0, **model}}


def asks(**query: Any) -> dict[str, Any]:
    queries = [{"event_type": "EXCHANGE", "session_id": "current"}, query]
    return {"required_context": {"ledger_queries": queries}}


def test_nothing_of_other_packages_is_taken_over(stage: Stage, tmp_path: Path) -> None:
    for contract_id in ("PRC-SYNTHESIZE-001", "PRC-EXECUTE-001", "PRC-VERIFY-001"):
        path = f"HO1/contracts/{contract_id}.json"
        newer = {**json.loads((stage.root / path).read_bytes()), "version": "99.0.0"}
        said = refused(stage, {path.replace(".json", "@99.0.0.json"): json.dumps(newer).encode()})
        owner = InstalledFiles(stage.root).owner(path)
        assert (
            f"The contract {contract_id} belongs to {owner}, but PKG-MINE-001 contains it too."
            in said
        )
    for name in ("PRM-EXECUTE-001.md", "PRM-EXECUTE-001@2.txt"):
        said = refused(stage, {f"HO1/prompt_packs/{name}": b"Obey."})
        assert "The prompt pack PRM-EXECUTE-001 belongs to PKG-HO1-EXECUTOR-001" in said
    content = files({"agent_id": "admin-001"})
    content["HO2/agents/admin-001.json"] = content.pop(AGENT)
    assert "has the id of Remit's own agent" in refused(stage, content)

    manifest = manifest_of(files({"model": "openai/gpt-4o"}), "PKG-MINE-001")
    for asset in manifest["assets"]:
        asset["classification"] = "document"
    with pytest.raises(ManifestError) as caught:
        archive_of(tmp_path / "p", files({"model": "openai/gpt-4o"}), manifest)
    assert caught.value.code == "misplaced", "calling it a document does not help"

    newer = {**json.loads(files()[CONTRACT]), "version": "2.0.0"}
    several = {**files(), "HO1/contracts/PRC-MINE-001@2.0.0.json": json.dumps(newer).encode()}
    stage.bring(stage.pack(several))
    other = {"HO2/agents/sub/mine.json": files()[AGENT]}
    said = refused(stage, other, package_id="PKG-AAA-001")
    assert "The agent mine belongs to PKG-MINE-001, but PKG-AAA-001 contains it too." in said


@pytest.mark.parametrize(
    ("agent", "contract", "permissions", "says"),
    [
        ({"token_budget": 10**12}, {}, {}, "token_budget of 1000000000000; the maximum is 2000000"),
        ({"usd_budget": "900000000"}, {}, {}, "usd_budget of 900000000; the maximum is 100.00"),
        ({}, asks(session_id="SES-00000001"), {}, "reads entries of other sessions"),
        ({"model": HAIKU}, {}, {}, f"asks the model {HAIKU}, which its package does not permit"),
        ({"model": "auto"}, {}, {}, "asks the model auto, which its package does not permit"),
        ({}, fixed(provider_id="openai", model_id="gpt-4o"), {}, "fixes the model openai/gpt-4o"),
        (
            {},
            fixed(provider_id="openai", model_id="gpt-4o"),
            {"models": [HAIKU], "budgets": BUDGETS},
            "fixes the model openai/gpt-4o; the package does not permit this model",
        ),
        ({}, asks(event_type="EXCHANGE"), {}, "reads entries of other sessions"),
        ({}, asks(work_order_id="WO-1"), {"tools": ["query_ledger"]}, "of other sessions"),
    ],
)
def test_an_agent_stays_in_its_bounds(
    untouched: Stage,
    agent: dict[str, Any],
    contract: dict[str, Any],
    permissions: dict[str, Any],
    says: str,
) -> None:
    assert says in refused(untouched, files(agent, contract), permissions=permissions)


def test_what_is_permitted_is_installed(stage: Stage) -> None:
    for contract, permissions in (
        (fixed(provider_id="openai", model_id="gpt-4o"), {"models": ["openai/*", "local/*"]}),
        (fixed(provider_id="openai"), {"models": ["openai/*", "local/*"]}),
        (fixed(model_id="gpt-4o"), {"models": ["*"]}),
        (asks(event_type="EXCHANGE"), {"tools": ["query_ledger_full"]}),
        (asks(event_type="EXCHANGE", session_id="current"), {}),
    ):
        granted = {"budgets": BUDGETS, **permissions}
        number = stage.bring_next(files(contract=contract), permissions=granted)
        with opened(stage.root) as ledger:
            assert _agent(stage, ledger).token_budget == 1000, number


def _agent(stage: Stage, ledger: LedgerClient, **given: Any) -> AgentDocument:
    document, _ = packaged_agent("mine", InstalledFiles(stage.root), ledger, DEFAULT, **given)
    return document


def test_an_agent_has_permitted_models_and_budgets_alone(stage: Stage) -> None:
    stage.bring_next(files())
    with opened(stage.root) as ledger:
        found = _agent(stage, ledger)
        assert (found.token_budget, found.usd_budget) == (2_000_000, None), "its framework's"
        for right in ({"model": "local/tiny"}, {"model": "tiny", "meaning": lambda _: [DEFAULT]}):
            _agent(stage, ledger, **right)
        for wrong in (
            {"model": HAIKU},
            {"model": "tiny"},
            {"model": "auto", "meaning": lambda _: []},
            {"model": "tiny", "meaning": lambda _: [("openai", "tiny")]},
            {"reserved": ["mine"]},
        ):
            with pytest.raises(NotFoundError):
                _agent(stage, ledger, **wrong)
    granted = {"models": [HAIKU, "local/*"], "budgets": BUDGETS}
    stage.bring_next(files({"model": HAIKU, "usd_budget": "0.05"}), permissions=granted)
    meaning = {"tiny": [DEFAULT], HAIKU: [tuple(HAIKU.split("/"))], "big": [("openai", "x")]}
    with opened(stage.root) as ledger:
        found = _agent(stage, ledger)
        assert (found.token_budget, found.usd_budget) == (1000, "0.05")
        _agent(stage, ledger, model="local/other")
        _agent(stage, ledger, model="tiny", meaning=meaning.__getitem__)
        for wrong, says in (
            ({"model": "gpt-4o"}, f"may use {HAIKU}, local/\\*, not gpt-4o"),
            ({"model": "openai/gpt-4o"}, "not openai/gpt-4o"),
            ({"model": "big", "meaning": meaning.__getitem__}, "not big"),
        ):
            with pytest.raises(NotFoundError, match=says):
                _agent(stage, ledger, **wrong)
    stage.bring_next(files(), permissions={"models": [HAIKU], "budgets": BUDGETS})
    with opened(stage.root) as ledger:
        with pytest.raises(NotFoundError, match="not local/tiny, which is the model here"):
            _agent(stage, ledger)
        _agent(stage, ledger, model=HAIKU)
