"""The root's own key, a ledger that is lost, links in the place of a root's folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import NotFoundError, RemitError
from remit.kernel.installation import InstalledFiles
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerClient, open_root_ledger
from remit.packages import AgentDocument, ManifestError, PackageError, PackageKey, found_packages
from remit.packages.gates import check_gates
from remit.packages.shipped import root_key_path, shipped_ids
from remit.packages.trust import TrustPolicy, change_trust, read_trust
from remit.runtime import Runtime, make_root
from remit.runtime.installation import gate_context
from remit.runtime.packaged_agents import packaged_agent
from tests.packages.hostile import Stage
from tests.packages.hostile import remit as command
from tests.packages.install.world import managing, opened, tree
from tests.support.packages import archive_of, manifest_of


@pytest.fixture
def root(stage: Stage) -> Path:
    return stage.root


def found(root: Path, *, new_ledger: bool = False) -> TrustPolicy:
    with opened(root) as ledger:
        found_packages(Root(root), ledger, by="tester", wait_s=5, new_ledger=new_ledger)
        return read_trust(root / TrustPolicy.FILE, ledger)


def swapped(root: Path) -> PackageKey:
    """Another key in the place of the root's own."""
    place = root_key_path(Root(root))
    place.unlink(missing_ok=True)
    return PackageKey.create(place, "somebody")


def lose_ledger(root: Path) -> None:
    for file in root.glob("ledger.db*"):
        file.unlink()


def trust(root: Path, change: Callable[[TrustPolicy], TrustPolicy]) -> None:
    with opened(root) as ledger:
        change_trust(root / TrustPolicy.FILE, ledger, change, "tester")


def test_the_own_key_is_trusted_for_what_ships_and_nothing_else(root: Path) -> None:
    (key,) = TrustPolicy.load(root / TrustPolicy.FILE).keys
    assert set(key.packages) == set(shipped_ids())
    assert not key.may_sign("PKG-EVIL-001")
    fewer = [*key.packages[1:], "PKG-MINE-001"]
    trust(root, lambda policy: policy.with_key(key.public, key.name, packages=fewer))
    (after,) = found(root).keys
    assert set(after.packages) == {*shipped_ids(), "PKG-MINE-001"}, "what newly ships is added"
    assert after.key_id == key.key_id
    assert found(root).keys == (after,)


def test_a_key_that_was_put_there_before_is_not_trusted(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    root.keys.mkdir(parents=True, mode=0o700)
    key = swapped(root.path)
    with pytest.raises(PackageError, match="not a trusted key") as refused:
        make_root(root)
    assert refused.value.code == "foreign_key"
    assert "--new-ledger" in refused.value.next_step
    root_key_path(root).unlink()
    make_root(root)
    assert TrustPolicy.load(root.path / TrustPolicy.FILE).get(key.key_id) is None
    assert PackageKey.load(root_key_path(root)).key_id != key.key_id


def test_a_key_that_was_swapped_is_not_trusted(root: Path) -> None:
    key = swapped(root)
    before = tree(root)
    for new_ledger in (False, True):
        with pytest.raises((PackageError, RemitError)):
            make_root(Root(root), new_ledger=new_ledger)
    with pytest.raises(PackageError, match="not recorded"):
        found(root, new_ledger=True)
    assert tree(root) == before
    assert TrustPolicy.load(root / TrustPolicy.FILE).get(key.key_id) is None


def test_a_key_that_is_retired_is_named_and_another_takes_its_place(root: Path) -> None:
    old = PackageKey.load(root_key_path(Root(root)))
    other = PackageKey.create(root.parent / "other.pem", "other")
    with opened(root) as ledger:
        change_trust(
            root / TrustPolicy.FILE, ledger,
            lambda policy: policy.with_key(other.public, "other").with_status(
                old.key_id, "retired"
            ),
            "tester",
        )  # fmt: skip
    with pytest.raises(PackageError, match="is retired"):
        found(root)
    root_key_path(Root(root)).unlink()
    policy = found(root)
    assert policy.find(PackageKey.load(root_key_path(Root(root))).key_id).status == "active"
    assert policy.find(old.key_id).status == "retired"


@pytest.mark.parametrize("recorded", [False, True])
def test_killed_between_the_key_and_its_name(root: Path, recorded: bool) -> None:
    place = root_key_path(Root(root))
    beside = place.with_name("packages.pem.new")
    own = PackageKey.load(place).key_id
    if recorded:
        place.rename(beside)
    else:
        place.unlink()
        PackageKey.create(beside, "root")
    stray = PackageKey.load(beside).key_id
    policy = found(root)
    now = PackageKey.load(place).key_id
    assert not beside.exists()
    assert policy.find(now).status == "active"
    if recorded:
        assert now == own
    else:
        assert now != stray
        assert policy.get(stray) is None


def test_a_lost_ledger_is_not_replaced_unasked(root: Path) -> None:
    lose_ledger(root)
    before = tree(root)
    with pytest.raises(RemitError, match="the record of earlier operations is missing") as refused:
        make_root(Root(root))
    assert "--new-ledger" in refused.value.next_step
    root.joinpath("remit.toml").unlink()
    with pytest.raises(RemitError, match="there is no ledger"):
        Runtime.open(root, create=True)
    assert not list(root.glob("ledger.db*"))
    root.joinpath("remit.toml").write_bytes(before["remit.toml"])
    assert tree(root) == before
    make_root(Root(root), bare=True)
    with pytest.raises(RemitError, match="is empty"):
        make_root(Root(root))
    with opened(root) as ledger:
        assert ledger.count() == 0


def test_a_new_ledger_begins_where_that_is_asked_for(root: Path) -> None:
    own = PackageKey.load(root_key_path(Root(root))).key_id
    lose_ledger(root)
    make_root(Root(root), new_ledger=True)
    with opened(root) as ledger:  # what its key signed is left behind, on record
        assert ledger.read("LED-00000000").decision == "FORKED"
        assert ledger.verifier_key is not None
        assert ledger.verifier_key.name.endswith("/fork-1")
    with managing(root) as manager:
        assert set(manager.registry().packages) == set(shipped_ids())
    assert TrustPolicy.load(root / TrustPolicy.FILE).find(own).status == "active"
    make_root(Root(root))
    with pytest.raises(RemitError, match="nothing is lost"):
        make_root(Root(root), new_ledger=True)
    other = PackageKey.create(root.parent / "other.pem", "other")
    trust(root, lambda policy: policy.with_key(other.public, "other"))
    lose_ledger(root)
    with pytest.raises(PackageError) as refused:
        make_root(Root(root), new_ledger=True)
    assert refused.value.code == "trust_changed", "who else was trusted is not believed"
    root.joinpath(TrustPolicy.FILE).unlink()
    make_root(Root(root), new_ledger=True)
    assert TrustPolicy.load(root / TrustPolicy.FILE).get(other.key_id) is None


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for folder in ("HOT", "HO2", "HO1", "HOT/installed", "HOT/keys", "HOT/registries"):
        root = tmp_path / folder.replace("/", "-")
        (root / folder).parent.mkdir(parents=True)
        (root / folder).symlink_to(outside)
        before = tree(root)
        for bare in (False, True):
            with pytest.raises(RemitError, match="is a link"):
                make_root(Root(root), bare=bare)
        assert list(outside.iterdir()) == []
        assert tree(root) == before


def test_an_imported_ledger_has_its_packages_vouched_for_anew(tmp_path: Path) -> None:
    first, second = Root(tmp_path / "first"), Root(tmp_path / "second")
    make_root(first)
    make_root(second, bare=True)
    settings = load_settings(first.config, installed=False).settings.ledger
    with open_root_ledger(first, settings) as ledger:
        ledger.export(tmp_path / "e.jsonl")
    with open_root_ledger(second, settings) as ledger:
        ledger.import_jsonl(tmp_path / "e.jsonl")
    make_root(second)
    loaded = load_settings(second.config)
    with open_root_ledger(second, settings) as ledger:
        before = ledger.count()
        (report,) = check_gates(gate_context(second, ledger, loaded), ["G5"], by="test").gates
        assert report.passed, report.errors
    make_root(second)  # once is enough
    with open_root_ledger(second, settings) as ledger:
        assert ledger.count() == before + 1


# A package of one's own takes over nothing, reads no other session, and stays in its bounds.


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
        assert f"The contract {contract_id} belongs to {owner}; PKG-MINE-001 brings it too." in said
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
    assert "The agent mine belongs to PKG-MINE-001; PKG-AAA-001 brings it too." in said


@pytest.mark.parametrize(
    ("agent", "contract", "permissions", "says"),
    [
        ({"token_budget": 10**12}, {}, {}, "token_budget of 1000000000000, where 2000000 is the"),
        ({"usd_budget": "900000000"}, {}, {}, "usd_budget of 900000000, where 100.00 is the most"),
        ({"model": HAIKU}, {}, {}, f"asks the model {HAIKU}, which the package is not permitted"),
        ({"model": "auto"}, {}, {}, "asks the model auto, which the package is not permitted"),
        ({}, fixed(provider_id="openai", model_id="gpt-4o"), {}, "fixes the model openai/gpt-4o"),
        ({}, fixed(model_id="gpt-4o"), {}, "fixes the model gpt-4o"),
        ({}, fixed(provider_id="openai"), {}, "fixes the model openai;"),
        (
            {},
            fixed(provider_id="openai", model_id="gpt-4o"),
            {"models": [HAIKU], "budgets": BUDGETS},
            "fixes the model openai/gpt-4o; the package is not permitted it",
        ),
        (
            {},
            fixed(model_id="gpt-4o"),
            {"models": ["local/*"], "budgets": BUDGETS},
            "fixes the model gpt-4o; the package is not permitted it",
        ),
        ({}, asks(event_type="EXCHANGE"), {}, "reads the record of other sessions"),
        ({}, asks(session_id="SES-00000001"), {}, "reads the record of other sessions"),
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
