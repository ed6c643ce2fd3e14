"""An operator's table as it is edited, and prices out of LiteLLM's file."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from remit.kernel.errors import RemitError
from remit.providers.prices import Overlay, PriceTable, Usage, differences, read_litellm

DAY = date(2026, 12, 1)
BASE = PriceTable.shipped()
EVERYTHING = b"""version = 2026-11-30
[limits]
lowest = 0.0001
highest = "2000"
[same_prices]
openai-eu = "openai"
[server_tools.office]
"web search" = { per_use = "0.008", date = 2026-11-30, source = "a \\"deal\\"" }
[surcharges.openai.service_tier]
priority = "1.5"
[models."office/qwen3-32b"]
provider = "office"
date = 2026-11-30
input = 0.10
output = "0.3"
tiers = [{ above_input_tokens = 1000, input = "0.2", output = "0.6" }]
aliases = ["qwen", "qwen\\u007f"]
thinks = true
max_output_tokens = 1000
context_window = 2000
"""


def _litellm(models: dict[str, dict[str, Any]], overlay: Overlay | None = None) -> Any:
    data = json.dumps({"sample_spec": {"input_cost_per_token": 0.0}, **models}).encode()
    own = overlay or Overlay({})
    return read_litellm(data, "list.json", BASE, BASE, own, providers=BASE.providers, day=DAY)


def _model(**costs: Any) -> dict[str, Any]:
    return {"litellm_provider": "openai", "mode": "chat", "max_input_tokens": 1000,
            "max_output_tokens": 100, **costs}  # fmt: skip


def test_a_table_is_written_as_it_was_read() -> None:
    own = Overlay.read(EVERYTHING, "own.toml", BASE)
    written = own.to_toml()
    assert Overlay.read(written, "own.toml", BASE) == own
    tables = [PriceTable.overlay(data, "own.toml", BASE) for data in (EVERYTHING, written)]
    assert differences(*tables) == []
    price = tables[1].find("office", "qwen")
    assert price is not None
    assert price.rates.input == 100_000_000
    assert dict(price.server_tools) == {"web search": 8_000_000}


rates = st.decimals("0.0001", "1000", places=9)


@given(rates, rates, st.text(min_size=1))
def test_what_is_set_is_charged_to_the_last_digit(in_: Decimal, out: Decimal, model: str) -> None:
    entry = {"provider": "office", "date": DAY, "input": f"{in_:f}", "output": f"{out:f}"}
    own = Overlay({}).with_entry(f"office/{model}", entry, DAY)
    price = PriceTable.overlay(own.to_toml(), "own.toml", BASE).find("office", model)
    assert price is not None
    assert price.cost_nano(Usage(1_000_000, 0)) == in_ * 10**9
    assert price.cost_nano(Usage(0, 1_000_000)) == out * 10**9


def test_floats_of_litellm_are_read_as_decimals() -> None:
    found, counts = _litellm(
        {
            "gpt-99": _model(
                input_cost_per_token=1.25e-06,
                output_cost_per_token=1e-05,
                cache_read_input_token_cost=1.5000000000000002e-07,
                input_cost_per_token_above_200k_tokens=2.5e-06,
                output_cost_per_token_above_200k_tokens=1.5e-05,
            ),
            "gpt-4o": _model(
                input_cost_per_token=2.5e-06,
                output_cost_per_token=1e-05,
                cache_read_input_token_cost=1.25e-06,
            ),
            "gpt-free": _model(input_cost_per_token=0.0, output_cost_per_token=0.0),
            "gpt-endless": {"litellm_provider": "openai", "input_cost_per_token": 1e-06},
            "bedrock/claude": {"litellm_provider": "bedrock", "input_cost_per_token": 1e-06},
        }
    )
    assert counts["same"] == 1  # gpt-4o
    assert list(found.models) == ["openai/gpt-99"]
    entry = found.models["openai/gpt-99"]
    assert entry["input"], entry["output"] == ("1.25", "10")
    assert entry["cached_input"] == "0.15"
    assert entry["tiers"] == [
        {"above_input_tokens": 200000, "input": "2.5", "output": "15", "cached_input": "0.3"}
    ]
    assert (entry["context_window"], entry["max_output_tokens"]) == (1100, 100)
    assert sum(counts["skipped"].values()) == 3
    assert Overlay.read(found.to_toml(), "own.toml", BASE) == found


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b'{"gpt-9": {"litellm_provider": "openai", "input_cost_per_token": -1e-06}}', "gpt-9"),
        (b'{"gpt-9": {"litellm_provider": "openai", "input_cost_per_token": "1"}}', "gpt-9"),
        (b'{"gpt-9": {"litellm_provider": "openai", "input_cost_per_token": 1e-17}}', "nano"),
        (b'{"gpt-9": {"litellm_provider": "openai", "input_cost_per_token": 1e400}}', "gpt-9"),
        (b'{"gpt-9": {"litellm_provider": "openai", "input_cost_per_token": true}}', "gpt-9"),
        (b'{"gpt-9": {}}', "not a LiteLLM price table"),
        (b'{"gpt-9": ', "not valid JSON"),
    ],
)
def test_a_bad_figure_is_named(data: bytes, named: str) -> None:
    with pytest.raises(RemitError, match=named):
        read_litellm(data, "f", BASE, BASE, Overlay({}), providers=["openai"], day=DAY)
