"""``remit ledger`` as operators and auditors use it."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import open_root_ledger
from remit.runtime.operations import all_operations
from tests.support.commands import require_said, run_remit
from tests.support.postgres import PostgresServer
from tests.support.stores import conversation

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def remit(tmp_path: Path) -> Run:
    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        root = {"REMIT_ROOT": str(tmp_path / "root")}
        return run_remit(*arguments, cwd=tmp_path, environment={**root, **environment})

    made = run("init", "--bare", tmp_path / "root")
    assert made.returncode == 0, made.stderr
    return run


@pytest.fixture
def filled(remit: Run, tmp_path: Path) -> Run:
    root = Root(tmp_path / "root")
    with open_root_ledger(root, load_settings(root.config).settings.ledger) as client:
        conversation(client, "SES-AAAAAAAA", 4)
        conversation(client, "SES-BBBBBBBB", 3, subject="person-1")
    return remit


def _json(result: subprocess.CompletedProcess[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_init_makes_a_key_that_only_its_owner_reads(remit: Run, tmp_path: Path) -> None:
    private = tmp_path / "root" / "HOT" / "keys" / "ledger.key"
    assert private.stat().st_mode & 0o777 == 0o600
    key = remit("ledger", "key").stdout.strip()
    assert key.startswith("remit.local/")
    assert remit("init", tmp_path / "root").returncode == 0
    assert remit("ledger", "key").stdout.strip() == key  # never made anew
    database = (tmp_path / "root" / "ledger.db").read_bytes()
    secret = private.read_bytes().split(b"\n")[1]
    assert secret not in database
    private.chmod(0o644)
    require_said(remit("ledger", "checkpoint"), "chmod 600")


def test_checkpoint_prove_and_verify(filled: Run, tmp_path: Path) -> None:
    for words in (("checkpoint",), ("prove", "LED-00000001")):
        noted = filled("ledger", *words, "--out", tmp_path / "noted")
        assert (noted.stdout, noted.stderr) == ("", f"Written to {tmp_path / 'noted'}.\n")
    assert filled("ledger", "checkpoint", "--out", tmp_path / "cp").returncode == 0
    first, size = (tmp_path / "cp").read_text().split("\n")[:2]
    assert (first.startswith("remit.local/"), size) == (True, "7")
    report = _json(filled("ledger", "verify", "--checkpoint", tmp_path / "cp", "--json"))
    assert report["verified"] is True
    assert (report["entries"], report["first_bad_seq"], report["problems"]) == (7, None, [])
    assert (report["erased"], report["checkpoint"]) == (0, "outside")
    assert filled("ledger", "prove", "LED-00000002", "--out", tmp_path / "p").returncode == 0
    assert (tmp_path / "p").read_text().startswith("c2sp.org/tlog-proof@v1\nindex 2\n")
    record = filled("ledger", "show", "LED-00000002", "--record")
    assert json.loads(record.stdout)["seq"] == 2
    assert filled("ledger", "prove", "LED-00000099").returncode == 1
    other = sqlite3.connect(tmp_path / "root" / "ledger.db")
    for table in ("entries", "shown_contents", "shown_lists"):
        other.execute(f"DELETE FROM {table} WHERE seq >= 5")
    other.execute("DELETE FROM checkpoints")
    other.commit()
    other.close()
    cut = filled("ledger", "verify", "--checkpoint", tmp_path / "cp", "--json")
    assert cut.returncode == 1
    assert _json(cut)["first_bad_seq"] == 5


def test_a_proof_is_checked_with_the_record_and_the_key(filled: Run, tmp_path: Path) -> None:
    proof, record = tmp_path / "proof", tmp_path / "record"
    assert filled("ledger", "prove", "LED-00000002", "--out", proof).returncode == 0
    record.write_text(filled("ledger", "show", "LED-00000002", "--record").stdout)
    key = filled("ledger", "key").stdout.strip()
    check = ("ledger", "check-proof", proof, "--record", record)
    found = _json(filled(*check, "--json"))
    assert (found["verified"], found["entry_id"], found["key"]) == (True, "LED-00000002", key)
    at_once = filled("ledger", "check-proof", "LED-00000002")
    assert at_once.stdout.startswith("verified: the record is entry LED-00000002 of "), at_once
    assert filled("ledger", "check-proof", "LED-0000ffff").returncode == 1
    require_said(
        filled("ledger", "check-proof", proof), f"{proof} is a file.", "Add `--record FILE`"
    )
    # The key of the caller needs no root.
    alone = filled(*check, "--key", key, REMIT_ROOT=str(tmp_path / "nowhere"))
    assert alone.returncode == 0, alone.stderr
    assert "the key of this root" not in alone.stderr
    other = tmp_path / "other"
    assert filled("init", "--bare", other).returncode == 0
    stranger = filled("ledger", "key", REMIT_ROOT=str(other)).stdout.strip()
    assert filled(*check, "--key", stranger).returncode == 1
    for command in (check, ("ledger", "verify", "--file", proof)):
        unset = filled(*command, "--key", "")  # a variable without a value
        assert (unset.returncode, unset.stdout) == (1, ""), unset.stderr
    require_said(
        filled("ledger", "verify", "--key", stranger), "--key has no effect without --file", code=2
    )
    require_said(filled("ledger", "verify", "--checkpoint", ""), "cannot be read")
    record.write_text(record.read_text().replace('"seq":2', '"seq":3'))
    assert filled(*check, "--key", key).returncode == 1
    assert filled("ledger", "check-proof", proof, "--record", tmp_path / "none").returncode == 1


def test_the_files_for_operators_and_the_examples_are_written(remit: Run, tmp_path: Path) -> None:
    out = tmp_path / "files"
    written = remit("deploy", "write", out)
    assert written.returncode == 0, written.stderr
    top = Path(__file__).parents[2]
    assert (out / "systemd/remit.service").read_bytes() == (
        top / "deploy/systemd/remit.service"
    ).read_bytes()
    standalone = out / "verify/verify_standalone.py"
    assert standalone.read_bytes() == (top / "docs/verify_standalone.py").read_bytes()
    assert not standalone.is_symlink()
    for target in re.findall(r"\]\(([^)#]+)", (out / "README.md").read_text()):
        assert target.startswith("https://") or (out / target).exists(), target
    require_said(remit("deploy", "write", out), "exists", code=2)
    folders = {each.name for each in (top / "examples").glob("*/")} - {"__pycache__"}
    (init,) = all_operations("init")
    (example,) = (one for one in init.fields("command") if one.name == "example")
    assert folders == set(get_args(example.inner))
    assert remit("init", tmp_path / "root", "--example", "support_agent").returncode == 0
    assert (tmp_path / "support_agent/support_agent.py").is_file()
    assert remit("init", tmp_path / "root", "--example", "support_agent").returncode == 2
    assert remit("init", tmp_path / "root", "--example", "../src").returncode == 2


def test_what_is_no_checkpoint_is_refused(filled: Run, tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("junk")
    for place in ("http://127.0.0.1:1/", tmp_path / "none", tmp_path / "junk"):
        assert filled("ledger", "verify", "--checkpoint", place).returncode == 1


def test_erase_says_first_and_does_it_with_yes(filled: Run) -> None:
    would = _json(filled("ledger", "erase", "LED-00000001", "--json"))
    assert (would["erased"], would["erasure_id"]) == (False, None)
    said = filled("ledger", "erase", "LED-00000001").stdout
    assert "; add --yes and --reason WHY to erase\n" in said
    assert (
        "; add --yes to erase\n"
        in filled("ledger", "erase", "LED-00000001", "--reason", "r").stdout
    )
    assert filled("ledger", "erase", "LED-00000001", "--yes").returncode == 2  # no reason
    done = _json(filled("ledger", "erase", "LED-00000001", "--yes", "--reason", "r 1", "--json"))
    assert (done["erased"], done["erasure_id"], done["sessions"]) == (
        True, "LED-00000007", ["SES-AAAAAAAA"])  # fmt: skip
    again = filled("ledger", "erase", "LED-00000001", "--yes", "--reason", "r 1")
    assert again.stdout == "no content is left to erase: see LED-00000007\n"
    person = ("ledger", "erase", "--subject", "person-1", "--yes", "--reason", "r 2", "--json")
    assert _json(filled(*person))["sessions"] == ["SES-BBBBBBBB"]
    unknown = [part.replace("person-1", "persn-1") for part in person]
    require_said(filled(*unknown), "There is no content to erase.", "Check the spelling")
    session = ("ledger", "erase", "--session", "SES-BBBBBBBB", "--yes", "--reason", "x", "--json")
    for again in (person, session):
        found = _json(filled(*again))
        assert (found["erasure_id"], found["values"], found["remainder"]) == (
            "LED-00000008", 0, None)  # fmt: skip
    went = _json(filled("ledger", "erase", "LED-00000005", "--yes", "--reason", "r", "--json"))
    assert (went["erased"], went["erasure_id"], went["values"]) == (True, "LED-00000008", 0)
    report = _json(filled("ledger", "verify", "--json"))
    assert (report["verified"], report["erasures"]) == (
        True, {"LED-00000007": done["values"], "LED-00000008": 11})  # fmt: skip
    entry = _json(filled("ledger", "show", "LED-00000001", "--json"))
    assert entry["metadata"]["response"] == {"$erased": "LED-00000007"}  # type: ignore[index]
    shown = filled("ledger", "show", "LED-00000001").stdout
    assert '  prompt: ["[content erased under LED-00000007]"' in shown
    assert "Erased(" not in shown
    assert filled("ledger", "erase").returncode == 2


def test_retention_is_taken_from_the_configuration(filled: Run, tmp_path: Path) -> None:
    assert filled("ledger", "retain").stdout == "nothing to erase\n"
    with (tmp_path / "root" / "remit.toml").open("a") as file:
        file.write("\n[ledger.retention_days]\nEXCHANGE = 0.0000001\n")
    assert "would erase" in filled("ledger", "retain").stdout
    assert _json(filled("ledger", "retain", "--yes", "--json"))["erased"] is True
    assert filled("ledger", "verify").returncode == 0


def test_export_import_and_search(filled: Run, tmp_path: Path) -> None:
    assert filled("ledger", "export", "--out", tmp_path / "e.jsonl").returncode == 0
    assert filled("ledger", "export", "--out", tmp_path / "t", "--tiles").returncode == 0
    assert (tmp_path / "t" / "tile" / "entries" / "000.p" / "7").exists()
    to_stdout = filled("ledger", "export", "--out", "-")
    assert to_stdout.stdout.count("\n") == 8
    key = filled("ledger", "key").stdout.strip()
    new = {"REMIT_ROOT": str(tmp_path / "new")}
    filled("init", "--bare", tmp_path / "new")
    done = filled("ledger", "import", tmp_path / "e.jsonl", "--key", key, "--json", **new)
    assert _json(done) == {
        "entries": 7, "contents": 22, "erased": 0, "checkpoint": "held",
        "unsigned_subjects": 0,
    }  # fmt: skip
    found = _json(filled("ledger", "query", "--text", '"answer 2"', "--json", **new))
    assert [item["id"] for item in found["entries"]] == [  # type: ignore[attr-defined]
        "LED-00000002", "LED-00000003", "LED-00000006",
    ]  # fmt: skip
    require_said(filled("ledger", "import", tmp_path / "e.jsonl", **new), "not empty")
    third = {"REMIT_ROOT": str(tmp_path / "third")}
    filled("init", "--bare", tmp_path / "third")
    lines = (tmp_path / "e.jsonl").read_text().splitlines(keepends=True)
    for broken in ("".join(lines[:-1]), "".join([*lines[:3], *lines[4:]]), "junk\n", "",
                   "".join(lines).replace("answer 1", "answer X", 1)):  # fmt: skip
        (tmp_path / "broken").write_text(broken)
        refused = filled("ledger", "import", tmp_path / "broken", **third)
        assert refused.returncode == 1, broken[:80]
        assert "Traceback" not in refused.stderr
    assert json.loads(filled("ledger", "stats", "--json", **third).stdout)["entries"] == 0


def test_a_root_on_postgresql_by_its_environment(remit: Run, postgres: PostgresServer,
                                                 tmp_path: Path) -> None:  # fmt: skip
    there = {"REMIT_DATABASE_URL": postgres.database()}
    require_said(remit("ledger", "stats", **there), "remit init")
    assert remit("init", "--bare", tmp_path / "root", **there).returncode == 0
    root = Root(tmp_path / "root")
    settings = load_settings(root.config, environment=there).settings.ledger
    with open_root_ledger(root, settings) as client:
        conversation(client, "SES-AAAAAAAA", 4)
    assert _json(remit("ledger", "verify", "--json", **there))["entries"] == 4
    assert _json(remit("ledger", "stats", "--json"))["entries"] == 0  # SQLite's own
    require_said(remit("ledger", "stats", REMIT_DATABASE_URL="mysql://x/y"), "postgresql://")


def test_a_repair_is_advised_only_if_the_entries_are_sound(filled: Run, tmp_path: Path) -> None:
    assert filled("key", "create", "--name", "app").returncode == 0
    repair = "`remit budget check --repair`"
    with contextlib.closing(sqlite3.connect(tmp_path / "root" / "ledger.db")) as other, other:
        other.execute("UPDATE usage_keys SET key_id = 'KEY-X'")
    assert repair in filled("ledger", "verify").stdout
    with contextlib.closing(sqlite3.connect(tmp_path / "root" / "ledger.db")) as other, other:
        other.execute("DELETE FROM entries WHERE seq = 0 OR seq BETWEEN 2 AND 3")
    said = filled("ledger", "verify")
    assert "LED-00000000: this entry is missing" in said.stdout
    assert "LED-00000002: the entries from this one to LED-00000003 are missing" in said.stdout
    assert "usage_keys" in said.stdout
    assert repair not in said.stdout


def test_an_extract_is_written_and_verified_without_the_root(filled: Run, tmp_path: Path) -> None:
    key = filled("ledger", "key").stdout.strip()
    place = tmp_path / "extract.json"
    calls = _json(filled("ledger", "query", "--event-type", "EXCHANGE", "--json"))["entries"]
    assert isinstance(calls, list)
    for option in (
        ("--session", "SES-AAAAAAAA"), ("--action", calls[0]["id"]), ("--range", 2, "LED-00000005"),
    ):  # fmt: skip
        made = filled("ledger", "export", *option, "--out", place)
        assert made.returncode == 0, made.stderr
        stranger = {"REMIT_ROOT": str(tmp_path / "none")}
        found = filled("ledger", "verify", "--file", place, "--key", key, "--json", **stranger)
        assert _json(found)["verified"] is True
        said = filled("ledger", "verify", "--file", place, **stranger)
        require_said(said, key, code=0)
        assert ("entries of SES-AAAAAAAA before LED-" in said.stdout) == ("--session" in option)
        whole = json.loads(place.read_text())
        missing = json.loads(whole["records"].pop(0))["id"]
        place.write_text(json.dumps(whole))
        refused = filled("ledger", "verify", "--file", place, "--key", key, **stranger)
        assert (refused.returncode, f"{missing} is missing" in refused.stdout) == (1, True)
    assert filled("ledger", "verify").returncode == 0
    for wrong in (
        ("--session", "a", "--order", "b"), ("--range", "x", "3"), ("--range", "3", "3"),
        ("--session", "SES-NONE"), ("--action", "LED-00ffffff"), ("--session", "a", "--tiles"),
    ):  # fmt: skip
        assert filled("ledger", "export", *wrong, "--out", place).returncode != 0
    assert filled("ledger", "verify", "--file", tmp_path / "no").returncode == 1
    assert filled("ledger", "export", "--out", place).returncode == 0  # of another kind, not bad
    other = filled("ledger", "verify", "--file", place)
    require_said(other, "is not an extract", "verify_standalone.py", code=2)


def test_an_option_without_effect_and_an_id_that_names_nothing_are_refused(filled: Run) -> None:
    for flag, *more in (
        ("--incremental", "--file", "x"), ("--archive", ".", "--file", "x"), ("--key", "k"),
        ("--before", "2026-01-01T00:00:00Z"),
    ):  # fmt: skip
        done = filled("ledger", "verify", flag, *more)
        assert done.returncode != 0
        assert f"{flag} has no effect with" in done.stderr
    for command, said in (
        (("receipt", ""), "no entry of ''"), (("receipt", "SES-\udcff"), "is not text"),
        (("receipt", "LED-\udcff"), "is not text"), (("ledger", "show", "\udcff"), "is not text"),
        (("receipt", "LED-zz"), "no entry 'LED-zz'"),
    ):  # fmt: skip
        done = filled(*command)
        assert done.returncode in (1, 2)
        assert said in done.stderr
        assert "damaged" not in done.stderr
