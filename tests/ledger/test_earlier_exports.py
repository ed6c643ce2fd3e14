"""Exports that an earlier version wrote, without a statement under their checkpoint."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from remit.ledger import ExportFormatError, LedgerClient
from remit.ledger.tlog import VerifierKey
from tests.support.commands import run_remit
from tests.support.stores import SIGNER, conversation

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


def test_a_plain_checkpoint_in_the_place_of_the_statement_is_told(tmp_path: Path) -> None:
    """Whoever has a plain checkpoint of the size can name any person then: readers say so."""
    with LedgerClient(tmp_path / "l.db", signer=SIGNER) as client:
        conversation(client, "SES-1", 3)
        plain = client.checkpoint()
        client.export(tmp_path / "e.jsonl")
    head, *lines = map(json.loads, (tmp_path / "e.jsonl").read_bytes().splitlines())
    head["checkpoint"] = plain
    del head["subjects_before"]
    values = [item for line in lines for item in line["contents"]]
    for item in values:
        item["subjects"] = ["bob"]
    forged = tmp_path / "forged.jsonl"
    forged.write_text("".join(f"{json.dumps(line)}\n" for line in (head, *lines)))
    key = str(SIGNER.verifier_key)
    command = [sys.executable, "-I", "-S", str(SCRIPT), str(forged), "--key", key]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "not signed, and not verified: subjects\n" in done.stdout, done.stderr
    root = tmp_path / "root"
    assert run_remit("init", "--bare", root).returncode == 0
    done = run_remit("ledger", "import", forged, "--key", key, "--root", root)
    assert f"The persons of {len(values)} values" in done.stderr, done.stderr
    with LedgerClient(tmp_path / "sound.db", verifier_key=SIGNER.verifier_key) as client:
        sound = client.import_jsonl(tmp_path / "e.jsonl", key=SIGNER.verifier_key)
        assert sound.unsigned_subjects == 0
