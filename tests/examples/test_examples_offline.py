"""The batch with the small local model: no key, no network. Skipped where the model is not here."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from remit.kernel.errors import RemitError
from remit.providers.weights import WeightStore
from tests.examples.playing import EXAMPLES, sound


def _why_not() -> str:
    if importlib.util.find_spec("xllamacpp") is None:
        return "the extra 'local' is not installed"
    try:
        WeightStore().path("smollm2-135m")
    except RemitError as error:
        return str(error)
    return ""


WHY_NOT = _why_not()
pytestmark = [
    pytest.mark.local_model,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is here"),
]


def test_the_schema_holds_a_small_model_too(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,text\na,I was charged twice.\nb,It crashes.\n")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "batch_csv/batch_csv.py"), "rows.csv", "--model", "local",
         "--usd", "0.01", "--root", "root"],
        cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "left: none" in done.stdout
    with (tmp_path / "classified.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["id"] for row in written] == ["a", "b"]
    for row in written:
        assert row["topic"] in ("billing", "bug", "question", "other")
        assert row["urgent"] in ("True", "False")
    sound(tmp_path)
