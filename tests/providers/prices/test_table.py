"""The table: what it says, whom it finds, what it refuses."""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from remit.kernel.errors import RemitError
from remit.providers.prices import Overlay, PriceTable, Usage, differences, read_litellm

HEAD = "version = 2026-12-01\n"
MODEL = '[models."m"]\nprovider = "p"\ndate = 2026-12-01\ninput = "1"\noutput = "2"\n'


def write(folder: Path, text: str, name: str = "own.toml") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def table(folder: Path, text: str) -> PriceTable:
    return PriceTable.from_file(write(folder, text))


def model(table: PriceTable, provider: str, name: str) -> str | None:
    price = table.find(provider, name)
    return None if price is None else price.model


@pytest.mark.parametrize(
    ("provider", "name", "found"),
    [
        ("openai", "gpt-4o-mini", "gpt-4o-mini"),
        ("openai", "openai/gpt-4o-mini", "gpt-4o-mini"),
        ("openai", "gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("openai", "gpt-4o-mini-2024-13-18", None),
        ("openai", "gpt-4o-mini-20240718", None),
        ("openai", "gpt-4o-mini-2024-07-18-x", None),
        ("openai", "gpt-4o-mini-2024-07-1٨", None),
        ("openai", "gpt-4o-mini-audio", None),
        ("openai", "gpt-4o-minimum", None),
        ("openai", "GPT-4o-mini", None),
        ("openai", "gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("openai", "gpt-4o-2024-08-06", "gpt-4o"),
        ("openai", "ft:gpt-4o-mini-2024-07-18:us:x", None),
        ("openai", "", None),
        ("openai", "2024-07-18", None),
        ("", "gpt-4o-mini", None),
        ("vllm", "gpt-4o-mini", None),
        ("vllm", "openai/gpt-4o-mini", None),
        ("anthropic", "claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic", "claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("anthropic", "claude-sonnet-4-9", None),
        ("anthropic", "gpt-4o-mini", None),
        ("google", "gemini-2.5-pro", "gemini-2.5-pro"),
        ("gemini", "gemini-2.5-pro", "gemini-2.5-pro"),
        ("groq", "openai/gpt-oss-20b", "groq/openai/gpt-oss-20b"),
        ("groq", "groq/openai/gpt-oss-20b", "groq/openai/gpt-oss-20b"),
        ("openai", "gpt-oss-20b", None),
    ],
)
def test_a_name_finds_its_model_or_none(provider: str, name: str, found: str | None) -> None:
    shipped = PriceTable.shipped()
    for _ in range(2):  # found, and remembered
        assert model(shipped, provider, name) == found


def test_every_shipped_price_says_when_and_how_much() -> None:
    prices = list(PriceTable.shipped())
    assert len(prices) == len(PriceTable.shipped()) > 50
    providers = {price.provider for price in prices}
    assert providers >= {"openai", "anthropic", "google", "mistral", "deepseek", "xai"}
    for price in prices:
        assert price.date <= PriceTable.shipped().version[:10]
        assert price.rates.input or price.per_second or price.per_character
        assert price.rates.output or price.max_output_tokens is None
        assert price.rates.cached_input <= price.rates.input, price.model
        assert price.rates.input <= price.rates.cache_write <= price.rates.cache_write_long
        assert PriceTable.shipped().find(price.provider, price.model) is price


def test_rates_are_read_exactly_and_left_out_ones_are_those_of_their_whole(tmp_path: Path) -> None:
    more = (
        'cached_input = 0.1\ncache_write = "0.000000300"\nreasoning = 3\nsource = "a letter"\n'
        "max_output_tokens = 10\ncontext_window = 20\n"
        "tiers = [{ above_input_tokens = 5, input = 2, output = 4, cached_input = 0.2,"
        ' cache_write = "0.0006", reasoning = 6 }]\n[limits]\nlowest = "0.0000001"\nhighest = 9\n'
    )
    price = table(tmp_path, HEAD + MODEL + more).find("p", "m")
    assert price is not None
    rates = price.rates
    assert (rates.input, rates.output, rates.reasoning) == (10**9, 2 * 10**9, 3 * 10**9)
    assert (rates.cached_input, rates.cache_write, rates.cache_write_long) == (10**8, 300, 300)
    assert price.tiers[0].rates.cache_write_long == 600_000
    assert (price.max_output_tokens, price.context_window) == (10, 20)
    assert (price.date, price.source) == ("2026-12-01", "a letter")
    plain = table(tmp_path, HEAD + MODEL).find("p", "m")
    assert plain is not None
    assert {plain.rates.cached_input, plain.rates.cache_write, plain.rates.cache_write_long} == {
        10**9
    }
    assert plain.rates.reasoning == plain.rates.output
    assert plain.max_output_tokens is plain.context_window is None


TIER = 'tiers = [{ above_input_tokens = 5, input = "1", output = "1" }]\n'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "version is missing"),
        ("version = 'soon'\n", "version must be a day"),
        ("version = \n", "not valid TOML"),
        (HEAD + "model = 1\n", "model is not a key.*Did you mean models"),
        (HEAD + "models = 1\n", "models must be a table"),
        (HEAD + MODEL + "inptu = '1'\n", r'models."m"\.inptu is not a key.*Did you mean input'),
        (HEAD + MODEL.replace('input = "1"\n', ""), r'models."m"\.input is missing'),
        (HEAD + MODEL.replace('"1"', '"-1"'), r'models."m"\.input is -1;'),
        (HEAD + MODEL.replace('"1"', "nan"), r'models."m"\.input is nan;'),
        (HEAD + MODEL.replace('"1"', '"1e3"'), r'models."m"\.input is 1e3;'),
        (HEAD + MODEL.replace('"1"', '"1.' + "0" * 40 + '1"'), "more than 9 places"),
        (HEAD + MODEL.replace('"1"', '"0.00000015"'), "outside what is believable.*per million"),
        (HEAD + MODEL.replace('"1"', '"150000"'), r"outside what is believable.*now [0-9.]+ to "),
        (HEAD + MODEL + "max_output_tokens = 0\n", r'models."m"\.max_output_tokens is 0'),
        (HEAD + MODEL + "aliases = 'x'\n", r'models."m"\.aliases must be a list'),
        (HEAD + MODEL + "snapshots = 'any'\n", r'models."m"\.snapshots must be one of'),
        (HEAD + MODEL + "tiers = [1]\n", r'models."m"\.tiers\[0\] must be a table'),
        (HEAD + MODEL + TIER.replace("5", "0"), r"tiers\[0\]\.above_input_tokens is 0"),
        (HEAD + MODEL + TIER.replace(', output = "1"', ""), r"tiers\[0\]\.output is missing"),
        (
            HEAD + MODEL + TIER.replace("}]", '}, { above_input_tokens = 5, input = "1",')[:-1]
            + ' output = "1" }]\n',
            r"tiers\[1\]\.above_input_tokens must rise",
        ),
        (HEAD + MODEL + "[limits]\nlowest = 1\n", r"limits\.highest"),
        (HEAD + MODEL + "[limits]\nlowest = 2\nhighest = 1\n", "limits must have"),
        (HEAD + MODEL + "[same_prices]\nx = 1\n", r"same_prices\.x must be a text"),
        (HEAD + MODEL + MODEL.replace('"m"', '"n"') + "aliases = ['m']\n", "m of p refers to two"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_and_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(RemitError, match=f"(?s)^.*{named}"):
        table(tmp_path, text)


def test_an_own_price_lies_over_the_shipped_one(tmp_path: Path) -> None:
    own = table(
        tmp_path,
        HEAD + MODEL.replace('"m"', '"gpt-4o"').replace('"p"', '"openai"')
        + MODEL.replace('"m"', '"mistral-small-latest"').replace('"p"', '"mistral"')
        + MODEL.replace('"m"', '"mistral-medium-3-5"').replace('"p"', '"mistral"')
        + MODEL.replace('"m"', '"codestral-2508"').replace('"p"', '"mistral"') + "aliases = []\n"
        + MODEL.replace('"m"', '"office/llama"').replace('"p"', '"office"')
        + MODEL.replace('"m"', '"gpt-5.6-sol"').replace('"p"', '"openai"')
        + MODEL.replace('"m"', '"gpt-5.6"').replace('"p"', '"openai"')
        + '[same_prices]\nopenai-eu = "openai"\n',
    )  # fmt: skip
    both = PriceTable.shipped().overlaid(own)
    before = PriceTable.shipped().find("openai", "gpt-4o")
    price = both.find("openai", "gpt-4o")
    assert before is not None
    assert price is not None
    assert price.rates.input == price.rates.cached_input == 10**9  # nothing of the old price
    assert price.max_output_tokens == before.max_output_tokens
    assert both.find("openai", "gpt-4o-2024-08-06") is price
    assert model(both, "openai", "gpt-4o-2024-05-13") == "gpt-4o-2024-05-13"
    assert both.find("openai-eu", "gpt-4o") is price
    assert model(both, "office", "llama") == "office/llama"
    assert model(both, "mistral", "mistral-small-latest") == "mistral-small-latest"
    assert model(both, "mistral", "mistral-medium-latest") == "mistral-medium-3-5"
    assert model(both, "mistral", "codestral-latest") is None  # the own entry says: no aliases
    assert model(both, "mistral", "mistral-small-2603") == "mistral-small-2603"
    assert model(both, "openai", "gpt-5.6") == "gpt-5.6"
    assert model(both, "anthropic", "claude-sonnet-4-5") == "claude-sonnet-4-5"
    assert PriceTable.shipped().find("openai", "gpt-4o") is before
    assert len(both) == len(PriceTable.shipped()) + 3


def test_the_table_in_the_documentation_is_valid(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs/prices.md"
    (text,) = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    both = PriceTable.shipped().overlaid(table(tmp_path, text))
    assert model(both, "openai-eu", "gpt-4o-mini-2024-07-18") == "gpt-4o-mini"
    assert model(both, "office", "qwen3-32b") == "office/qwen3-32b"
    assert model(both, "some-host", "some-model-2026-11-30") == "some-model"
    with pytest.raises(RemitError) as unknown:
        table(tmp_path, HEAD + MODEL + "zzzzz = 1\n")
    keys = unknown.value.next_step.removeprefix("Known: ").rstrip(".").split(", ")
    assert set(re.findall(r"^(\w+) = ", text, re.MULTILINE)) >= set(keys)


# -- An operator's table as it is edited, and prices out of LiteLLM's file ------------------------


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
