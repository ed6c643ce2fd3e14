"""Roots to look through: made once with everything that ships, copied for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import Settings, load_settings
from remit.ledger import LedgerClient, open_root_ledger
from remit.packages.gates import GateContext, GateReport, GateResult, check_gates
from remit.runtime.installation import gate_context
from tests.support.roots import new_root


@dataclass
class House:
    """A root that a test changes before it looks.

    Attributes:
        flags: settings by dotted key.
        changes: fields of the context that are to be others.
    """

    root: Root
    flags: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.root.path

    def settings(self) -> Settings:
        """In force."""
        return load_settings(self.root.config, flags=self.flags, installed=False).settings

    @contextmanager
    def ledger(self) -> Iterator[LedgerClient]:
        """Its record, open."""
        with open_root_ledger(self.root, self.settings().ledger) as ledger:
            yield ledger

    @contextmanager
    def context(self) -> Iterator[GateContext]:
        """What gates look at."""
        loaded = load_settings(self.root.config, flags=self.flags, installed=False)
        with self.ledger() as ledger:
            found = gate_context(self.root, ledger, loaded)
            model: Any = lambda: ("local", loaded.settings.local.model)  # noqa: E731
            yield replace(found, **{"model": model, **self.changes})

    def check(self, *gates: str, full: bool = False) -> GateReport:
        """What gates say."""
        with self.context() as context:
            return check_gates(context, gates or None, full=full, by="test")

    def one(self, gate: str, *, full: bool = False) -> GateResult:
        """What one gate says."""
        (result,) = self.check(gate, full=full).gates
        return result

    def errors(self, gate: str) -> str:
        """What one gate finds wrong; each finding says what to do."""
        result = self.one(gate)
        assert not result.passed
        assert all(finding.next_step for finding in result.findings), result.findings
        return " | ".join(result.errors)

    def write(self, path: str, text: str) -> None:
        """Put a file into the root, whatever is there."""
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        (self.path / path).write_text(text)


def fails(error: RemitError) -> Any:
    """A call that raises."""

    def call() -> Any:
        raise error

    return call


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A root of the test's own."""
    return House(Root(new_root(tmp_path / "root")))
