"""G3: settings, permissions and what is in use, each within and beyond what is allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import ConfigError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerEntry, open_root_ledger
from remit.packages.documents import Framework
from remit.packages.gates import check_gates
from remit.runtime.installation import gate_context
from tests.packages.gates.conftest import House, fails
from tests.packages.gates.test_orders import Writer, writing
from tests.support.roots import new_root


def _framework(house: House, **config: Any) -> None:
    """Give a framework these ceilings of settings, by its file alone."""
    file = house.path / "HOT/frameworks/FMWK-KERNEL-001.json"
    value = json.loads(file.read_bytes())
    value["config"] = {name.replace("__", "."): schema for name, schema in config.items()}
    Framework.parse(json.dumps(value).encode(), file.name)
    file.write_text(json.dumps(value))


def _tool(write: Writer, event: str, tool_id: str, status: str = "ok") -> str:
    told: dict[str, Any] = {"tool_id": tool_id, "arguments": {}, "idempotency_key": "k"}
    if event == "TOOL_CALL":
        told |= {"status": status, "result": None, "arguments_bytes": 2, "result_bytes": 2,
                 "tool_error": ""}  # fmt: skip
    return write.step(event, "WO-SES-1-001", **told)


def test_the_shipped_settings_keep_the_shipped_ceilings(house: House) -> None:
    result = house.one("G3")
    assert result.passed, result.errors
    assert "0 ceilings" not in result.message


def test_settings_that_cannot_be_loaded_fail_it_and_no_other_gate(house: House) -> None:
    house.changes["settings_error"] = ConfigError("There is no setting x.", next_step="Remove it.")
    report = house.check()
    assert [one.gate for one in report.gates if not one.passed] == ["G3"]
    assert "There is no setting x." in house.errors("G3")


@pytest.mark.parametrize(
    ("name", "schema", "flags", "says"),
    [
        (
            "server__metrics_open", {"const": False}, {"server.metrics_open": True},
            "The setting server.metrics_open is above what FMWK-KERNEL-001 lets it be",
        ),
        (
            "budget__session_tokens", {"maximum": 10}, {},
            "The setting budget.session_tokens is above",
        ),
        (
            "routing__models__gpt-4.1__provider", {"const": "local"}, {},
            "routing.models.gpt-4.1.provider is above",
        ),
        (
            "providers__openai__api_key", {"const": ""},
            {"providers.openai.api_key": "sk-very-secret"}, "providers.openai.api_key is above",
        ),
        ("server__nothing", {}, {}, "a ceiling for the setting server.nothing, which does not"),
        ("server__port__more", {}, {}, "server.port.more, which does not exist"),
    ],
)  # fmt: skip
def test_a_setting_keeps_its_ceiling(
    house: House, name: str, schema: dict[str, Any], flags: dict[str, Any], says: str
) -> None:
    _framework(house, **{name: schema})
    house.flags = flags
    told = house.errors("G3")
    assert says in told
    assert "sk-very-secret" not in told


def test_what_a_user_may_name_and_did_not_keeps_every_ceiling(house: House) -> None:
    _framework(house, mcp__files__command={"const": "never"}, server__port={"minimum": 1})
    assert house.one("G3").passed


def test_permissions_and_dependencies_are_looked_at(house: House) -> None:
    file = house.path / "HOT/frameworks/FMWK-KERNEL-001.json"
    value = json.loads(file.read_bytes())
    value["rules"]["permissions"] = {}
    file.write_text(json.dumps(value))
    spec = json.loads(file.read_bytes())
    assert spec["rules"]["permissions"] == {}
    with house.ledger() as ledger:
        ledger.write(LedgerEntry("REMOVED", "PKG-GENESIS-000", "REMOVED", "x", metadata={}))
    house.changes["most_errors"] = 1000
    told = house.errors("G3")
    assert "needs PKG-GENESIS-000" in told


def test_a_framework_that_is_not_there_lets_nothing_pass(house: House) -> None:
    (house.path / "HOT/frameworks/FMWK-KERNEL-001.json").unlink()
    house.changes["most_errors"] = 1000
    assert "FMWK-KERNEL-001 is not installed, or cannot be used" in house.errors("G3")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            {"chat.tools_allowed": ["format_disk"]},
            "chat.tools_allowed uses the tool format_disk, which no package permits",
        ),
        (
            {"routing.models.other": {"provider": "elsewhere"}},
            "routing.models.other uses the model elsewhere/other",
        ),
    ],
)
def test_what_the_configuration_uses_is_permitted(
    house: House, flags: dict[str, Any], says: str
) -> None:
    house.flags = flags
    assert says in house.errors("G3")


def test_fallbacks_that_a_package_permits_pass_by_any_of_their_names(house: House) -> None:
    house.flags = {
        "gateway.fallbacks": {"gpt-4o": ["openai/gpt-4o-mini", "claude-sonnet-5", "gpt-4.1"]}
    }
    assert house.one("G3").passed


def test_the_default_model_is_permitted_and_known(house: House) -> None:
    house.changes["model"] = lambda: ("elsewhere", "big-1")
    assert "model.default uses the model elsewhere/big-1" in house.errors("G3")
    house.flags = {"gateway.fallbacks": {"gpt-4o": ["mystery-1"]}}
    assert "gateway.fallbacks.gpt-4o uses the model elsewhere/mystery-1" in house.errors("G3")
    house.changes["model"] = fails(ConfigError("Nobody here runs it."))
    assert "Nobody here runs it." in house.errors("G3")


def test_what_was_used_was_permitted(house: House) -> None:
    with writing(house) as write:
        _tool(write, "TOOL_INTENT", "list_files")
        _tool(write, "TOOL_CALL", "format_disk", "refused")
        write.exchange(provider_id="openai", model_id="gpt-4o-2024-08-06",
                       requested_model_id="gpt-4o")  # fmt: skip
        write.exchange(provider_id="elsewhere", model_id="big-1", outcome="error")
    assert house.one("G3").passed
    with writing(house) as write:
        first = _tool(write, "TOOL_INTENT", "Format_disk")
        _tool(write, "TOOL_CALL", "Format_disk", "error")
        write.exchange(provider_id="elsewhere", model_id="big-1")
    told = house.errors("G3")
    assert f"The tool Format_disk was used (entries: 2, the first {first})" in told
    assert "The model elsewhere/big-1 was used (entries: 1, " in told


def test_what_was_permitted_then_stays_so_when_its_package_goes(house: House) -> None:
    with writing(house) as write:
        write.exchange(provider_id="anthropic", model_id="claude-sonnet-5")
        write.ledger.write(
            LedgerEntry("REMOVED", "PKG-ANTHROPIC-PROVIDER-001", "REMOVED", "x", metadata={})
        )
    assert "anthropic/claude-sonnet-5 was used" not in house.errors("G3")
    with writing(house) as write:
        write.exchange(provider_id="anthropic", model_id="claude-sonnet-5")
    house.changes["most_errors"] = 1000
    assert "anthropic/claude-sonnet-5 was used (entries: 1, " in house.errors("G3")


def test_a_later_run_goes_on_where_the_last_one_ended(house: House) -> None:
    house.flags["gates.full_entries"] = 0
    house.flags["chat.tools_allowed"] = ["list_files"]
    first = house.one("G3")
    assert first.passed
    with writing(house) as write:
        _tool(write, "TOOL_INTENT", "list_files")
    second = house.one("G3")
    assert second.passed
    assert f"({first.entry_id}; --full reads all)" in second.message
    assert "1 tools and models" in second.message
    with writing(house) as write:
        _tool(write, "TOOL_INTENT", "format_disk")
    assert "format_disk" in house.errors("G3")
    assert "format_disk" in house.errors("G3")  # a failed run leaves no mark behind it


@pytest.mark.parametrize(
    "line", ['[routing]\nrules = "mine.json"', '[budget]\nprices = "../prices.toml"']
)
def test_rules_and_prices_that_no_package_brought(tmp_path: Path, line: str) -> None:
    root = Root(new_root(tmp_path / "root"))
    with root.config.open("a") as file:
        file.write(f"\n{line}\n")
    loaded = load_settings(root.config)
    with open_root_ledger(root, loaded.settings.ledger) as ledger:
        (report,) = check_gates(gate_context(root, ledger, loaded), ["G3"], by="test").gates
    assert not report.passed
    assert "which no package brought" in report.errors[0]
