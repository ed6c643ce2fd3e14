"""Roots to check: made once with everything that ships, copied for each test."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import EffectiveSettings, load_settings
from remit.ledger import LedgerClient, open_root_ledger
from remit.packages import record_settings
from remit.packages.gates import GateContext, GateReport, GateResult, check_gates
from remit.runtime.installation import gate_context
from remit.runtime.state_tables import check_state
from tests.support.roots import new_root


@dataclass
class House:
    """A root that a test changes before it looks.

    Attributes:
        path: its directory.
        flags: settings by dotted key.
        changes: fields of the context that differ.
    """

    path: Path
    flags: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def context(self) -> Iterator[GateContext]:
        """What gates look at."""
        root = Root(self.path)
        loaded = load_settings(root.config, flags=self.flags, installed=False)
        local = "local", loaded.settings.local.model
        with open_root_ledger(root, loaded.settings.ledger, checks=(check_state,)) as ledger:
            with contextlib.suppress(RemitError):  # as any start does
                record_settings(ledger, EffectiveSettings.of(loaded), by="test")
            found = gate_context(root, ledger, loaded)
            yield replace(found, **{"model": lambda: local, **self.changes})

    @contextmanager
    def ledger(self) -> Iterator[LedgerClient]:
        """Its record, open."""
        with self.context() as context:
            yield context.ledger

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """The ledger's file, to be damaged."""
        connection = sqlite3.connect(self.path / "ledger.db")
        try:
            yield connection
            connection.commit()
        finally:
            connection.close()

    def check(self, *gates: str, full: bool = False) -> GateReport:
        """What gates report."""
        with self.context() as context:
            return check_gates(context, gates or None, full=full, by="test")

    def one(self, gate: str, *, full: bool = False) -> GateResult:
        """What one gate reports."""
        (result,) = self.check(gate, full=full).gates
        return result

    def passes(self, gate: str, *, full: bool = False) -> str:
        """The message of a gate that passes."""
        result = self.one(gate, full=full)
        assert result.passed, result.errors
        return result.message

    def errors(self, gate: str) -> str:
        """What one gate finds wrong; each finding says what to do."""
        result = self.one(gate)
        assert not result.passed
        assert all(finding.next_step for finding in result.findings), result.findings
        return " | ".join(result.errors)

    def write(self, path: str, content: str | Mapping[str, Any]) -> None:
        """Put a text or JSON into a file of the root, whatever is there."""
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (self.path / path).write_text(text)

    def read(self, path: str) -> dict[str, Any]:
        """The JSON of a file of the root."""
        found: dict[str, Any] = json.loads((self.path / path).read_bytes())
        return found

    def empty_ledger(self) -> None:
        """Put an empty ledger into the place of its own."""
        for file in self.path.glob("ledger.db*"):
            file.unlink()
        LedgerClient(self.path / "ledger.db").close()


def fails(error: Exception) -> Any:
    """A call that raises."""

    def call() -> Any:
        raise error

    return call


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A root of the test's own."""
    return House(new_root(tmp_path / "root"))
