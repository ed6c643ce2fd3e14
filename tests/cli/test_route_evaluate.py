"""``remit route evaluate --register``: choices that are changed or come late are refused."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remit.kernel.canonical import canonical_json
from remit.ledger import LedgerClient, LedgerEntry, LedgerFormatError, make_extract
from remit.ledger.tlog import COSIGNATURE, SignedCheckpoint, Signer, VerifierKey
from remit.routing import read_registration, register_choices
from tests.ledger.witness.running import witness_server
from tests.support.commands import run_remit
from tests.support.soak import SEED, sample
from tests.support.standalone import load_standalone, standalone

_PROMPTS = [
    {"id": f"q-{number}", "prompt": f"What is {number} and {number}?", "task": "mathematics"}
    for number in range(120)
]
_CASES = 1000


class Registered(NamedTuple):
    """A registration, and what an auditor has from elsewhere."""

    file: Path
    key: str
    witness: str
    root: Path

    def read(self, data: bytes | None = None, before: str | None = None) -> Any:
        keys = [VerifierKey.parse(self.witness)]
        own = self.file.read_bytes() if data is None else data
        return read_registration(own, VerifierKey.parse(self.key), keys, before)


def _write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Registered:
    place = tmp_path_factory.mktemp("evaluation")
    root = place / "root"
    assert run_remit("init", root).returncode == 0
    key = run_remit("ledger", "key", "--root", root).stdout.strip()
    witness = run_remit("witness", "init", "--dir", place / "w", "--name", "w.example/1").stdout
    with witness_server(place / "w", "--log", key, "--port", "0") as (_, url):
        for _ in range(2):
            done = run_remit(
                "route", "evaluate", "--root", root, _write(place / "prompts", _PROMPTS),
                "--register", place / "registration.json", "--witness", url, witness.strip(),
                environment={"OPENAI_API_KEY": "sk-not-a-key-of-anybody"},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    return Registered(place / "registration.json", key, witness.strip(), root)


def test_the_verifier_states_what_was_fixed_and_when(registered: Registered) -> None:
    done = run_remit("ledger", "verify", "--file", registered.file, "--key", registered.key,
                     "--witness", registered.witness)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (statement,) = done.stdout.splitlines()
    assert statement.startswith("verified: 120 choices of the route 'auto' by the code 'sha256:")
    assert "the witness 'w.example/1' had seen it at 20" in statement
    assert statement.endswith("this is registration 2 of these prompts")
    assert run_remit("ledger", "verify", "--root", registered.root).returncode == 0
    alone = standalone(registered.file, "--key", registered.key, "--witness", registered.witness)
    assert alone.returncode == 0, alone.stderr
    assert "120 choices of the route 'auto'" in alone.stdout
    assert "the witness 'w.example/1' had seen it at 20" in alone.stdout


def _changed(registered: Registered, chance: random.Random) -> Iterator[bytes]:
    """Yield registrations with one change: of a choice, the record, the head or the order."""
    whole = json.loads(registered.file.read_bytes())
    models = ["gpt-4o", "gpt-4.1", "another"]
    for _ in range(_CASES // 2):
        copy = json.loads(json.dumps(whole))
        rows, at = copy["choices"], chance.randrange(len(_PROMPTS))
        kind = chance.choice(["model", "prompt", "id", "drop", "add", "swap", "record", "code"])
        if kind == "model":
            rows[at]["model"] = chance.choice([one for one in models if one != rows[at]["model"]])
        elif kind in ("prompt", "id"):
            rows[at][kind] = f"{chance.getrandbits(256):064x}"
        elif kind == "drop":
            rows.pop(at)
        elif kind == "add":
            rows.append({**rows[at], "id": "q-late"})
        elif kind == "swap":
            rows[at], rows[at - 1] = rows[at - 1], rows[at]
        else:
            record = json.loads(copy["records"][0])
            name = chance.choice(["choices", "prompts", "code", "rules"])
            record["metadata"][name] = f"{chance.getrandbits(256):064x}"
            copy["records"] = [json.dumps(record, separators=(",", ":"), sort_keys=True)]
        yield json.dumps(copy).encode()


@pytest.mark.soak
def test_edited_choices_are_refused(registered: Registered) -> None:
    cases = sample(_changed(registered, random.Random(SEED)), 40)
    check = load_standalone().check_registration
    for data in cases:
        with pytest.raises(LedgerFormatError):
            registered.read(data)
        with pytest.raises(ValueError, match=r"\("):
            check(json.loads(data), registered.key, registered.witness)
    print(f"{len(cases)} of {len(cases)} edited choices refused")


@pytest.mark.soak
def test_late_choices_are_refused(registered: Registered) -> None:
    """By the witness's time, which the operator of the log cannot set."""
    ((_, seen),) = registered.read().witnesses
    at, chance = datetime.fromisoformat(seen), random.Random(SEED)
    cases = sample([at - timedelta(seconds=chance.randint(0, 10**7)) for _ in range(500)], 40)
    for opened in cases:
        with pytest.raises(LedgerFormatError, match="too late"):
            registered.read(before=opened.isoformat())
    assert registered.read(before=(at + timedelta(seconds=1)).isoformat())
    print(f"{len(cases)} of {len(cases)} late choices refused")


def test_a_cosignature_with_an_earlier_time_is_refused(registered: Registered) -> None:
    whole = json.loads(registered.file.read_bytes())
    note = whole["checkpoint"]
    for at in (note.rindex(" ") + 9, note.rindex(" ") + 12):  # in the time of the cosignature
        other = "A" if note[at] != "A" else "B"
        copy = {**whole, "checkpoint": note[:at] + other + note[at + 1 :]}
        with pytest.raises(LedgerFormatError):
            registered.read(json.dumps(copy).encode())
    stranger = Signer.generate("w.example/1", COSIGNATURE)
    signed = SignedCheckpoint.parse(note.rsplit("\n", 2)[0] + "\n")
    forged = signed.with_signatures([signed.cosign(stranger, 0)])
    with pytest.raises(LedgerFormatError, match="did not cosign"):
        registered.read(json.dumps({**whole, "checkpoint": str(forged)}).encode())


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "a", "prompt": "x", "results": {}}, "the answers may be open"),
        ({"id": "a", "prompt": "x", "answer": "4"}, "has the member 'answer'"),
        (["a"], "is no prompt"),
    ],
)
def test_prompts_that_cannot_be_registered(
    registered: Registered, tmp_path: Path, row: Any, said: str
) -> None:
    file = _write(tmp_path / "p", [{"id": "b", "prompt": "y"}, row])
    done = run_remit("route", "evaluate", "--root", registered.root, file, "--register",
                     tmp_path / "out", "--witness", "http://127.0.0.1:9", registered.witness,
                     environment={"OPENAI_API_KEY": "sk-not-a-key-of-anybody"})  # fmt: skip
    assert done.returncode != 0
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--key", ""), "key"), (("--before", "2030-01-01T00:00:00Z"), "needs the key of a witness")],
)
def test_a_check_that_could_not_fail_is_refused(
    registered: Registered, options: tuple[str, ...], said: str
) -> None:
    done = run_remit("ledger", "verify", "--file", registered.file, *options)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("change", [{"tier": "ho1"}, {"count": 999}, {"rules": None}])
def test_an_entry_of_another_writer_is_no_registration(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    signer = Signer.generate("forged.example")
    with LedgerClient(str(tmp_path / "ledger.db"), signer=signer) as client:
        facts = {"route": "auto", "code": "sha256:0", "rules": "rv"}
        line = json.dumps(_PROMPTS[0]).encode()
        found = register_choices(client, lambda prompt, task: "m", [line], facts)
        assert read_registration(canonical_json(found), None, [])
        entry = client.read(json.loads(found["records"][0])["id"])
        metadata = {**entry.metadata, **change}
        metadata = {name: value for name, value in metadata.items() if value is not None}
        forged = LedgerEntry(entry.event_type, "EVA-1", "REGISTERED", "r", metadata=metadata)
        seq = int(client.write(forged).removeprefix("LED-"), 16)
        extract = make_extract(client, {"first": seq, "end": seq + 1})
        data = canonical_json({**extract, "format": found["format"], "choices": found["choices"]})
    with pytest.raises(LedgerFormatError, match="not those that the ledger recorded"):
        read_registration(data, None, [])
    with pytest.raises(ValueError, match="registration-choices"):
        load_standalone().check_registration(json.loads(data), None, None)
