"""Exports that an earlier version wrote, without a statement under their checkpoint."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from pathlib import Path

import pytest

from remit.ledger import ExportFormatError, LedgerClient
from remit.ledger.tlog import VerifierKey

FOLDER = Path(__file__).parent
SCRIPT = FOLDER.parents[1] / "docs" / "verify_standalone.py"
KEY = VerifierKey.parse((FOLDER / "export-9db8616.vkey").read_text())


@pytest.mark.parametrize("name", ["export-9db8616", "archived-export-9db8616"])
def test_they_verify_and_come_back(tmp_path: Path, name: str) -> None:
    data = gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes())
    assert b"remit-export/1" not in data
    (tmp_path / "e.jsonl").write_bytes(data)
    command = [sys.executable, "-I", "-S", str(SCRIPT), str(tmp_path / "e.jsonl")]
    done = subprocess.run([*command, "--key", str(KEY)], capture_output=True, text=True)
    assert done.stdout.endswith("VERIFIED\n"), done.stderr
    with LedgerClient(tmp_path / "l.db", verifier_key=KEY) as client:
        assert client.import_jsonl(io.BytesIO(data), key=KEY).checkpoint == "held"
        assert client.verify().problems == []


def test_usage_of_archived_entries_is_held_against_the_record(tmp_path: Path) -> None:
    """Nothing signs it in such an export, but an ``ARCHIVED`` entry carries its digest."""
    data = gzip.decompress((FOLDER / "archived-export-9db8616.jsonl.gz").read_bytes())
    for old, new in ((b'"SES-3"', b'"SES-x"'), (b'"measured",6', b'"measured",5')):
        changed = data.replace(old, new, 1)
        assert changed != data
        with (
            LedgerClient(tmp_path / "l.db") as client,
            pytest.raises(ExportFormatError, match="archived-usage"),
        ):
            client.import_jsonl(io.BytesIO(changed), key=KEY)
