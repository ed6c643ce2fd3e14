"""What ships as packages: whole, resolved, governed, and true to the code."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remit.agents import admin_tools
from remit.agents.supervisor import thread_tools
from remit.contracts import ContractLoader, check_examples
from remit.kernel.schemas import first_problem
from remit.kernel.settings import load_settings
from remit.ledger import EVENTS, LedgerClient
from remit.packages import Permissions, Registry, in_range
from remit.packages.checks import (
    PackageView,
    check_ceilings,
    check_completeness,
    check_modules,
    check_resolution,
)
from remit.packages.distribution import Distribution
from remit.packages.documents import Specification
from remit.packages.paths import PLANES, RESERVED
from remit.packages.permissions import permits
from tests.packages.shipped import (
    Shipped,
    files,
    frameworks,
    manifests,
    needs,
    of_kind,
    registry,
)

_DOCS = Path(__file__).parents[2] / "docs"

# These ship at least.
_AT_LEAST = [
    "PKG-GENESIS-000", "PKG-KERNEL-001", "PKG-VOCABULARY-001", "PKG-REG-001",
    "PKG-GOVERNANCE-UPGRADE-001", "PKG-FRAMEWORK-WIRING-001", "PKG-SPEC-CONFORMANCE-001",
    "PKG-LAYOUT-001", "PKG-LAYOUT-002", "PKG-PHASE2-SCHEMAS-001", "PKG-TOKEN-BUDGETER-001",
    "PKG-WORK-ORDER-001", "PKG-LLM-GATEWAY-001", "PKG-ANTHROPIC-PROVIDER-001",
    "PKG-HO1-EXECUTOR-001", "PKG-HO2-SUPERVISOR-001", "PKG-SESSION-HOST-V2-001", "PKG-SHELL-001",
    "PKG-ADMIN-001", "PKG-VERIFY-001", "PKG-ROUTER-001",
]  # fmt: skip

# And these.
_ADMIN_TOOLS = [
    "gate_check", "read_file", "list_files", "query_ledger", "query_ledger_full", "list_packages",
    "list_sessions", "session_overview", "reconstruct_session", "trace_prompt_journey",
    "show_runtime_config", "verify_ledger", "budget_status", "explain_route",
    "usage", "recall_turn",
]  # fmt: skip


def _tool_ids() -> set[str]:
    """The tools that come with Remit."""
    return set(_ADMIN_TOOLS) | {tool.tool_id for tool in thread_tools()}


def test_the_ids_of_the_specification_ship() -> None:
    assert set(_AT_LEAST) <= set(manifests())
    assert {one.package_id for one in manifests().values()} == set(manifests())
    assert "PKG-PROMPT-ROUTER-001" in manifests()["PKG-LLM-GATEWAY-001"].supersedes


def test_every_file_has_one_owner_and_a_place() -> None:
    paths = [asset.path for manifest in manifests().values() for asset in manifest.assets]
    assert len(paths) == len({path.casefold() for path in paths})
    layout = json.loads(files()["HOT/documents/tier_layout.json"])
    kinds = {one["folder"]: one["classification"] for one in layout["folders"]}
    for manifest in manifests().values():
        for asset in manifest.assets:
            folder = asset.path[: asset.path.rindex("/") + 1]
            assert kinds.get(folder) == asset.classification, asset.path
            assert not asset.path.startswith(RESERVED)
    assert {name: tuple(planes) for name, planes in layout["planes"].items()} == dict(PLANES)


def test_dependencies_are_there_in_range_and_without_a_cycle() -> None:
    for name, manifest in manifests().items():
        layer = -1
        for dependency in manifest.dependencies:
            other = manifests()[dependency.package_id]
            assert in_range(other.version, dependency.version), (name, dependency)
            layer = max(layer, other.layer)
        # So no cycle is possible, and the number says how far above the ground a package stands.
        assert manifest.layer == layer + 1, name
        assert name == "PKG-GENESIS-000" or "PKG-GENESIS-000" in needs(name)
    assert manifests()["PKG-GENESIS-000"].dependencies == ()


def _view(registry_: Registry | None = None) -> PackageView:
    return PackageView(registry_ or registry(), Shipped(), _tool_ids())


def test_specifications_and_frameworks_resolve_and_have_what_they_declare() -> None:
    assert list(check_resolution(_view())) == []
    assert list(check_completeness(_view())) == []
    packages = {name: one for name, one in registry().packages.items() if name != "PKG-ROUTER-001"}
    problems = [finding.message for finding in check_completeness(_view(Registry(packages)))]
    assert any("SPEC-ROUTER-001" in problem for problem in problems)


def test_expected_specifications_are_closed_both_ways() -> None:
    specs = [Specification.parse(data, path) for _, path, data in of_kind("spec")]
    for framework in frameworks().values():
        mine = {spec.spec_id for spec in specs if spec.framework_id == framework.framework_id}
        assert mine == set(framework.expected_specs)
    declared = [one for spec in specs for one in spec.contracts]
    assert len(declared) == len(set(declared))
    assert set(declared) == {Path(path).stem for _, path, _ in of_kind("contract")}
    schemas = {one for spec in specs for one in spec.schemas}
    assert schemas == {path for _, path, _ in of_kind("schema")}


def test_every_module_belongs_to_one_package() -> None:
    modules = Distribution.current().modules()
    assert list(check_modules(registry(), modules)) == []
    stated = {name for manifest in manifests().values() for name in manifest.modules}
    # A new room has to be given to a package; the ground does not swallow it.
    unplaced = {name for name in modules if name.count(".") == 1} - stated
    assert unplaced == set(), f"State {sorted(unplaced)} in the manifest of a shipped package."


def test_permissions_keep_within_their_framework() -> None:
    assert list(check_ceilings(_view())) == []
    # Nothing of the kernel or of governance permits anything.
    granting = {name for name, one in manifests().items() if one.permissions != Permissions()}
    assert {manifests()[name].framework_id for name in granting} == {"FMWK-RUNTIME-001"}


def test_what_the_shipped_settings_use_is_permitted() -> None:
    settings = _defaults()
    tools = {one for manifest in manifests().values() for one in manifest.permissions.tools}
    assert set(settings["chat"]["tools_allowed"]) <= tools
    assert {tool.tool_id for tool in thread_tools()} <= tools
    models = [one for manifest in manifests().values() for one in manifest.permissions.models]
    for model, told in settings["routing"]["models"].items():
        assert permits(models, f"{told['provider']}/{model}"), model
    for provider, told in settings["providers"].items():
        assert permits(models, f"{provider}/{told['default_model']}"), provider


def test_admin_permits_exactly_its_tools(tmp_path: Path) -> None:
    permitted = manifests()["PKG-ADMIN-001"].permissions.tools
    assert sorted(permitted) == sorted(_ADMIN_TOOLS)
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        loaded = load_settings(None, environment={})
        tools = admin_tools(ledger, tmp_path, loaded.settings.tools, loaded)
        assert {tool.tool_id for tool in tools} <= set(permitted)


def test_ceilings_hold_and_bite() -> None:
    settings = _defaults()
    flags = {
        "ledger.content_keys": ["prompt"], "ledger.checkpoint_every_s": 1e6,
        "auth.revocation_s": 3600.0, "tools.hidden_files": ["*.key"], "worker.turn_limit": 10**9,
        "packages.ratio": 10**6,
    }  # fmt: skip
    loosened = load_settings(None, environment={}, flags=flags).settings.model_dump()
    refused = set()
    for framework in frameworks().values():
        for setting, schema in framework.config.items():
            assert first_problem(schema, _value(settings, setting)) == "", setting
            if first_problem(schema, _value(loosened, setting)):
                refused.add(setting)
    assert refused == set(flags)


def test_every_contract_has_a_pack_and_a_case(tmp_path: Path) -> None:
    for path, data in files().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    loader = ContractLoader(tmp_path / "HO1")
    assert loader.problems() == []
    contracts = loader.list()
    assert len(contracts) == len(of_kind("contract")) > 0
    owners = {Path(path).stem: name for name, path, _ in of_kind("contract")}
    packs = {Path(path).stem: name for name, path, _ in of_kind("prompt_pack")}
    for contract in contracts:
        assert contract.examples, contract.contract_id
        assert check_examples(contract, loader.load_pack(contract.prompt_pack_id)) == []
        owner = owners[contract.contract_id]
        assert packs.pop(contract.prompt_pack_id) == owner
        # The worker states both on each request.
        assert contract.metadata["package_id"] == owner
        assert contract.metadata["framework_id"] == manifests()[owner].framework_id
    assert packs == {}


def test_the_vocabulary_knows_every_event() -> None:
    told = json.loads(files()["HOT/documents/vocabulary.json"])
    events = [(one["event"], one["meaning"]) for one in told["events"]]
    assert events == [(event.name, event.meaning) for event in EVENTS.values()]
    words = [one["word"] for one in told["words"]]
    assert len(words) == len(set(words))
    for one in told["identifiers"]:
        assert re.search(one["pattern"], one["example"]), one["name"]


def test_the_table_in_the_docs_is_what_ships() -> None:
    text = (_DOCS / "packages-shipped.md").read_text("utf-8")
    start, end = "<!-- packages -->\n", "<!-- /packages -->"
    told = text[text.index(start) + len(start) : text.index(end)]
    assert told == "\n".join(_table()) + "\n", "The table should read:\n" + "\n".join(_table())


def _table() -> Iterator[str]:
    yield "| package | content |"
    yield "|---|---|"
    for name, manifest in sorted(manifests().items(), key=lambda one: (one[1].layer, one[0])):
        yield f"| `{name}` {manifest.version} | {manifest.title} |"


def _defaults() -> dict[str, Any]:
    return tomllib.loads(files()["HOT/config/defaults.toml"].decode())


def _value(settings: Mapping[str, Any], dotted: str) -> Any:
    value: Any = settings
    for part in dotted.split("."):
        value = value[part]
    return value
