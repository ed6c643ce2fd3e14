"""What inflates, or is one huge line, is refused at a stated limit and in bounded memory."""

from __future__ import annotations

import base64
import gzip
import importlib
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.archived_ranges import Places
from remit.ledger.contents import MAX_INFLATED_BYTES
from remit.ledger.export_reader import MAX_LINE_BYTES
from tests.support.soak import is_soak, soak_only
from tests.support.stores import SIGNER, outside

SCRIPT = Path(__file__).parents[2] / "docs" / "verify_standalone.py"
KEY = str(SIGNER.verifier_key)
BOMB_MB = 1024 if is_soak() else 64
_LIMIT_MB = 900 if is_soak() else 100

pytestmark = pytest.mark.soak


def bomb(megabytes: int) -> bytes:
    """A zlib stream of so many megabytes of zeroes."""
    packed, part = zlib.compressobj(9), bytes(1 << 20)
    return b"".join([*(packed.compress(part) for _ in range(megabytes)), packed.flush()])


def limited(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command that may not have more memory than the limit."""
    code = (
        "import resource, sys, runpy; "
        f"resource.setrlimit(resource.RLIMIT_AS, ({_LIMIT_MB << 20},) * 2); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    with LedgerClient(folder / "l.db", signer=SIGNER) as client:
        client.write(LedgerEntry("NOTE", "S", "D", "r", metadata={"prompt": "p"}))
        client.export(folder / "e.jsonl")
    return folder / "e.jsonl"


def test_a_map_of_archived_entries_does_not_inflate() -> None:
    text = base64.b64encode(bomb(BOMB_MB)).decode()
    with pytest.raises(ValueError, match="another length"):
        Places.of_text(256, text)


def test_a_map_in_an_export_does_not_inflate(tmp_path: Path) -> None:
    """The stand-alone verifier, with a limit of memory, on an export whose writer made the map."""
    text = base64.b64encode(bomb(BOMB_MB)).decode()
    root = "00" * 32
    with LedgerClient(tmp_path / "l.db", signer=SIGNER) as client:
        client.write_many(LedgerEntry("NOTE", "S", "D", "r") for _ in range(256))
        metadata = {"first": 0, "end": 256, "root": root, "entries": 1, "prompt": text}
        client.write(LedgerEntry("ARCHIVED", "S", "D", "r", metadata=metadata))
        client.export(tmp_path / "e.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "e.jsonl").read_bytes().splitlines()]
    row = lines[-1]
    row["record"] = row["record"].replace('"prompt":', '"left":')
    script = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import json\n"
        "import verify_standalone as v\n"
        f"row = json.load(open({str(tmp_path / 'row.json')!r}))\n"
        "e = v.Export({'entries': 257, 'subjects_before': 0}, True)\n"
        "try: e.note_archived(256, row, json.loads(row['record'])['metadata'])\n"
        "except ValueError as error: print(error)\n"
    )
    (tmp_path / "row.json").write_text(json.dumps(row))
    (tmp_path / "s.py").write_text(script)
    done = limited(str(tmp_path / "s.py"))
    assert "(archived-left)" in done.stdout, done
    done = limited(str(SCRIPT), str(tmp_path / "e.jsonl"), "--key", KEY)
    assert done.returncode == 1
    assert "archived-left" in done.stderr


@soak_only
def test_a_stored_value_does_not_inflate(tmp_path: Path) -> None:
    place = str(tmp_path / "l.db")
    with LedgerClient(place, signer=SIGNER) as client:
        client.write(LedgerEntry("NOTE", "S", "D", "r", metadata={"prompt": "p" * 9000}))
        assert client.verify().verified
    data = bomb(max(BOMB_MB, (MAX_INFLATED_BYTES >> 20) + 8))
    outside(place, f"UPDATE contents SET value = x'{data.hex()}'")
    with LedgerClient(place, verifier_key=SIGNER.verifier_key) as client:
        report = client.verify()
    assert "expands to more than" in str(report.problems[0])


@soak_only
def test_a_long_line_is_not_read(tmp_path: Path, export: Path) -> None:
    """One line of more than the limit, as a sparse file: 1 GB in a soak."""
    long = tmp_path / "long.jsonl"
    head = export.read_bytes().split(b"\n")[0]
    with long.open("wb") as file:
        file.write(head + b'\n{"seq":0,"record":"')
        file.truncate(max(MAX_LINE_BYTES + (1 << 20), (1 << 30) if is_soak() else 0))
    done = limited(str(SCRIPT), str(long), "--key", KEY)
    assert done.returncode == 1
    assert "the line is longer than" in done.stderr, done.stderr
    with LedgerClient(tmp_path / "new.db") as client:
        with pytest.raises(Exception, match=r"longer than .* \(json-text\)"):
            client.import_jsonl(long, key=SIGNER.verifier_key)
        assert client.count() == 0


def test_lower_limits_hold(tmp_path: Path, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, with limits of a few kilobytes."""
    from remit.ledger import ExportFormatError, LedgerError, imports
    from remit.ledger.segments import conversion

    place = str(tmp_path / "l.db")
    content = importlib.import_module("remit.ledger.contents")  # a function has that name, too
    with LedgerClient(place, signer=SIGNER) as client:
        client.write(LedgerEntry("NOTE", "S", "D", "r", metadata={"prompt": "p" * 9000}))
        monkeypatch.setattr(content, "MAX_INFLATED_BYTES", 8999)
        assert "expands to more than 8,999 bytes" in str(client.verify().problems[0])
    monkeypatch.setattr(imports, "MAX_LINE_BYTES", 500)
    with (
        LedgerClient(tmp_path / "new.db") as client,
        pytest.raises(ExportFormatError, match=r"longer than 500 bytes \(json-text\)"),
    ):
        client.import_jsonl(export, key=SIGNER.verifier_key)
    part = tmp_path / "part-000000.jsonl.gz"
    part.write_bytes(gzip.compress(bytes(1000)))
    monkeypatch.setattr(conversion, "MAX_LINE_BYTES", 999)
    with pytest.raises(LedgerError, match="a line is longer than 999 bytes"):
        list(conversion._lines(part))
