"""G3: settings, permissions and what is in use, each within and beyond what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from remit.kernel.errors import ConfigError
from remit.ledger import LedgerEntry
from remit.packages import Framework
from tests.packages.gates.conftest import House, fails
from tests.packages.gates.test_orders import Writer, writing

FRAMEWORK = "HOT/frameworks/FMWK-KERNEL-001.json"


def _ceilings(house: House, **config: Any) -> None:
    """Give a framework these ceilings of settings, by its file alone."""
    value = house.read(FRAMEWORK)
    value["config"] = {name.replace("__", "."): schema for name, schema in config.items()}
    house.write(FRAMEWORK, value)
    Framework.parse((house.path / FRAMEWORK).read_bytes(), FRAMEWORK)


def _tool(write: Writer, event: str, tool_id: str, status: str = "ok") -> str:
    fields: dict[str, Any] = {"tool_id": tool_id, "arguments": {}, "idempotency_key": "k"}
    if event == "TOOL_CALL":
        fields |= {"status": status, "result": None, "arguments_bytes": 2, "result_bytes": 2,
                   "tool_error": ""}  # fmt: skip
    return write.step(event, "WO-SES-1-001", **fields)


def test_settings_that_cannot_be_loaded_fail_it_and_no_other_gate(house: House) -> None:
    assert "0 ceilings" not in house.passes("G3")  # of the settings as they ship
    house.changes["settings_error"] = ConfigError("There is no setting x.", next_step="Remove it.")
    report = house.check()
    assert [gate.gate for gate in report.gates if not gate.passed] == ["G3"]
    assert "There is no setting x." in house.errors("G3")


def test_a_setting_keeps_its_ceiling(house: House) -> None:
    _ceilings(
        house,
        server__metrics_open={"const": False},
        budget__session_tokens={"maximum": 10},
        **{"routing__models__gpt-4.1__provider": {"const": "local"}},
        providers__openai__api_key={"const": ""},
        server__nothing={},
        server__port__more={},
        # what a user may name and did not, and one that is kept
        mcp__files__command={"const": "never"},
        server__port={"minimum": 1},
    )
    house.flags = {"server.metrics_open": True, "providers.openai.api_key": "sk-very-secret"}
    result = house.one("G3")
    found = " | ".join(result.errors)
    for problem in (
        "The setting server.metrics_open exceeds the ceiling of FMWK-KERNEL-001",
        "The setting budget.session_tokens exceeds the",
        "routing.models.gpt-4.1.provider exceeds", "providers.openai.api_key exceeds",
        "a ceiling for the setting server.nothing, which does not",
        "server.port.more, which does not exist",
    ):  # fmt: skip
        assert problem in found
    assert result.error_count == 6
    assert "sk-very-secret" not in found


def test_permissions_and_dependencies_are_checked(house: House) -> None:
    house.changes["most_errors"] = 1000
    with house.ledger() as ledger:
        ledger.write(LedgerEntry("REMOVED", "PKG-GENESIS-000", "REMOVED", "x", metadata={}))
    (house.path / FRAMEWORK).unlink()
    found = house.errors("G3")
    assert "needs PKG-GENESIS-000" in found
    assert "FMWK-KERNEL-001 is not installed or not valid" in found


def test_what_the_configuration_uses_is_permitted(house: House) -> None:
    house.flags = {
        "gateway.fallbacks": {
            "gpt-4o": ["openai/gpt-4o-mini", "claude-sonnet-5", "gpt-4.1", "openai:o3",
                       "us.anthropic.claude-x-v1:0", "anthropic"],
        }
    }  # fmt: skip
    assert house.passes("G3")  # by any of their names
    house.flags = {
        "chat.tools_allowed": ["format_disk"],
        "routing.models.other": {"provider": "elsewhere"},
        "gateway.fallbacks": {"gpt-4o": ["mystery-1", "nobody/gpt-4o"]},
    }
    house.changes["model"] = lambda: ("elsewhere", "big-1")
    found = house.errors("G3")
    assert "chat.tools_allowed uses the tool format_disk, which no package permits" in found
    assert "routing.models.other uses the model elsewhere/other" in found
    assert "model.default uses the model elsewhere/big-1" in found
    assert "gateway.fallbacks.gpt-4o uses the model elsewhere/mystery-1" in found
    assert "gateway.fallbacks.gpt-4o uses the model nobody/gpt-4o" in found
    house.changes["model"] = fails(ConfigError("No provider has it."))
    found = house.errors("G3")
    assert "No provider has it." in found
    assert "chat.tools_allowed uses the tool format_disk" in found


def test_what_was_used_was_permitted(house: House) -> None:
    with writing(house) as write:
        _tool(write, "TOOL_INTENT", "list_files")
        _tool(write, "TOOL_CALL", "format_disk", "refused")
        write.exchange(provider_id="openai", model_id="gpt-4o-2024-08-06",
                       requested_model_id="gpt-4o")  # fmt: skip
        write.exchange(provider_id="elsewhere", model_id="big-1", outcome="error")
    assert house.passes("G3")
    with writing(house) as write:
        first = _tool(write, "TOOL_INTENT", "Format_disk")
        _tool(write, "TOOL_CALL", "Format_disk", "error")
        write.exchange(provider_id="elsewhere", model_id="big-1")
    found = house.errors("G3")
    assert f"The tool Format_disk was used (first in {first}; entries: 2)" in found
    assert "The model elsewhere/big-1 was used (first in " in found


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
    assert "anthropic/claude-sonnet-5 was used (first in " in house.errors("G3")


def test_a_later_run_goes_on_where_the_last_one_ended(house: House) -> None:
    house.flags = {"gates.full_entries": 0, "chat.tools_allowed": ["list_files"]}
    first = house.one("G3")
    assert first.passed
    with writing(house) as write:
        _tool(write, "TOOL_INTENT", "list_files")
    message = house.passes("G3")
    assert "--full reads all" in message
    assert "1 tools and models" in message
    with writing(house) as write:
        _tool(write, "TOOL_INTENT", "format_disk")
    assert "format_disk" in house.errors("G3")
    assert "format_disk" in house.errors("G3")  # a failed run leaves no mark behind it


@pytest.mark.parametrize(
    ("setting", "file"), [("routing.rules", "mine.json"), ("budget.prices", "../prices.toml")]
)
def test_rules_and_prices_that_no_package_brought(house: House, setting: str, file: str) -> None:
    house.flags[setting] = file
    assert f"The setting {setting} names {file}, which no package contains" in house.errors("G3")
