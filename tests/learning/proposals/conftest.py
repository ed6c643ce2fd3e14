"""A root with exchanges on record, a learner, and a person who decides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.gateway.auth import Identity
from remit.kernel.exchange import PromptRequest
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.learning import Estimate
from remit.learning.proposals import Change, Governance, Learner, Proposal
from remit.providers import MockProvider
from remit.runtime.installation import governance
from tests.support.roots import new_root

OPERATOR = Identity("otto", "operator", key_id="key-otto")
ADMIN = Identity("anna", "admin", key_id="key-anna")


def two_models(provider: str, cheap: str, dear: str) -> str:
    """Settings of a route over two models, of which it prefers the second."""
    text = '[routing.routes.auto]\nmodels = ["cheap", "dear"]\n'
    for name, model, ability in (("cheap", cheap, 10), ("dear", dear, 99)):
        text += f'[routing.models.{name}]\nprovider = "{provider}"\nserved_as = "{model}"\n'
        text += f"abilities = {{ general = {ability} }}\n"
    return text


def gain(**values: Any) -> Estimate:
    """Return the estimate that a learner predicts; by default enough for a proposal."""
    usual: dict[str, Any] = {
        "value": 0.1, "low": 0.05, "high": 0.15, "samples": 400, "effective_samples": 300.0,
    }  # fmt: skip
    return Estimate(**{**usual, **values})


@dataclass
class World:
    """One root, open.

    Attributes:
        exchanges: ids of those on record.
    """

    place: Path
    runtime: Runtime
    exchanges: list[str]

    @property
    def root(self) -> Root:
        return Root(self.place)

    def learner(self, identity: Identity = OPERATOR) -> Learner:
        return Learner(self.root, self.runtime.ledger, self.runtime.loaded, identity)

    def propose(self, change: Change, **more: Any) -> Proposal:
        given = {
            "evidence": self.exchanges[:2], "predicted": gain(), "replay": {"held_out": 40},
            "reason": "It answers better.", **more,
        }  # fmt: skip
        return self.learner().propose(change, **given)

    def governance(self, identity: Identity = ADMIN) -> Governance:
        loaded = load_settings(self.root.config)
        return governance(self.root, self.runtime.ledger, loaded, identity)

    def exchange(self, prompt: str = "What is tea?") -> str:
        request = PromptRequest(
            prompt, "PRM-EXECUTE-001", "PRC-EXECUTE-001", "tester", "RESIDENT", "", "", "",
            "SES-1", "ho1", model_id="mock-model-1", provider_id="mock",
        )  # fmt: skip
        answer = self.runtime.gateway.route(request)
        assert not answer.error_code, answer
        return answer.exchange_entry_id


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path / "root") as made:
        yield made


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A root for tests that leave nothing there."""
    with opened(tmp_path_factory.mktemp("asked") / "root") as made:
        yield made


def open_runtime(place: Path, database: str = "") -> Runtime:
    """The root, with a model that answers and budgets that refuse nothing."""
    flags = {"budget.mode": "off", **({"ledger.path": database} if database else {})}
    return Runtime.open(place, providers={"mock": MockProvider()}, flags=flags)


@contextlib.contextmanager
def opened(place: Path, *, database: str = "") -> Iterator[World]:
    """A new root with three exchanges on record; its ledger may be another database."""
    with open_runtime(new_root(place, database=database), database) as runtime:
        made = World(place, runtime, [])
        made.exchanges = [made.exchange(f"What is tea {number}?") for number in range(3)]
        yield made
