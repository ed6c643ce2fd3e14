"""``remit price``: prices of the operator's own, on record, with all gates passing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LedgerClient
from tests.cli.conftest import Run, parsed
from tests.support.commands import require_said
from tests.support.roots import new_root


@pytest.fixture
def root(work: Path) -> Path:
    return new_root(work / ".remit")


def _gates(remit: Run) -> list[str]:
    done = remit("gate", "check", "--all", "--enforce", "--json")
    report = json.loads(done.stdout)
    assert len(report["gates"]) == 8
    assert report["passed"] == (done.returncode == 0)
    return [error for gate in report["gates"] for error in gate["errors"]]


def _changes(root: Path) -> list[Any]:
    with LedgerClient(root / "ledger.db") as ledger:
        return ledger.read_by_submission("prices")


def test_a_price_is_set_on_record_and_every_gate_passes(remit: Run, root: Path) -> None:
    before = parsed(remit("price", "show", "gpt-4o-mini", "--json"))
    assert before["price"]["origin"] == "shipped"
    rates = ["--input", "0.12", "--output", "0.48", "--cached-input", "0.06"]
    set_it = ["price", "set", "gpt-4o-mini", *rates, "--source", "a contract", "--json"]
    made = parsed(remit(*set_it))
    assert _gates(remit) == []
    after = parsed(remit("price", "show", "openai/gpt-4o-mini-2024-07-18", "--json"))
    assert after["price"]["origin"] == "own"
    assert (after["price"]["input"], after["price"]["cached_input"]) == ("0.12", "0.06")
    assert after["price"]["context_window"] == before["price"]["context_window"]
    assert after["version"] == made["version"]
    (entry,) = _changes(root)
    assert entry.id == made["entry"]
    said = entry.metadata
    assert said["by"]
    assert said["file"] == "prices.toml"
    assert said["sha256"] == hashlib.sha256((root / "prices.toml").read_bytes()).hexdigest()
    assert said["prices"] == [before["version"], after["version"]]
    (change,) = said["price_changes"]
    assert (change["before"]["input"], change["after"]["input"]) == ("0.15", "0.12")
    assert parsed(remit("price", "diff", "--json"))["changes"] == [change]
    listed = parsed(remit("price", "list", "--own", "--json"))["prices"]
    assert [price["model"] for price in listed] == ["gpt-4o-mini"]
    # To set the same again changes nothing, and is not put on record again.
    assert parsed(remit(*set_it))["entry"] is None
    assert len(_changes(root)) == 1
    assert parsed(remit("price", "unset", "gpt-4o-mini", "--json"))["version"] == before["version"]
    assert not (root / "prices.toml").exists()
    assert _gates(remit) == []


def test_people_read_rates_as_one_line_and_no_rate_as_none(remit: Run, root: Path) -> None:
    listed = remit("price", "list", "tts-1")
    assert listed.stdout.splitlines()[1].split()[2:5] == ["-", "-", "-"]  # by the character
    assert listed.stderr.startswith("USD per million tokens; prices ")
    made = remit("price", "set", "gpt-4o-mini", "--input", "2", "--output", "8")
    assert made.stdout.splitlines() == [
        "openai/gpt-4o-mini: input 2, output 8 USD per million tokens",
        "  before: input 0.15, output 0.6, cached_input 0.075 USD per million tokens",
    ]
    assert f"Recorded as {_changes(root)[0].id}." in made.stderr
    removed = remit("price", "unset", "--all")
    assert removed.stdout.startswith("openai/gpt-4o-mini: input 0.15, output 0.6")
    assert remit("price", "diff").stdout == "No price differs.\n"
    require_said(
        remit("price", "show", "nosuch"), "No price is known for nosuch.", "Check the name", code=2
    )


def test_a_price_is_found_by_every_form_of_a_name(remit: Run, root: Path) -> None:
    for name in ("openai/gpt-4o-mini", "openai:gpt-4o-mini", "OpenAI:gpt-4o-mini"):
        assert parsed(remit("price", "show", name, "--json"))["price"]["input"] == "0.15"


def test_a_change_by_hand_is_found_and_can_be_put_on_record(remit: Run, root: Path) -> None:
    remit("price", "set", "gpt-4o", "--input", "2", "--output", "8")
    file = root / "prices.toml"
    file.write_text(file.read_text().replace('"2"', '"0.2"'))
    (error,) = _gates(remit)
    assert "prices.toml differ from the prices recorded in LED-" in error
    assert remit("price", "import", file).returncode == 0
    assert _gates(remit) == []
    (change,) = parsed(remit("price", "diff", "--json"))["changes"]
    assert change["after"]["input"] == "0.2"
    file.unlink()
    (error,) = _gates(remit)
    assert "are missing" in error
    assert remit("price", "unset", "--all").returncode == 0
    assert _gates(remit) == []


def test_a_file_that_was_never_put_on_record_is_found(remit: Run, root: Path) -> None:
    text = 'version = 2026-12-01\n[models."gpt-4o"]\nprovider = "openai"\n'
    (root / "prices.toml").write_text(text + 'date = 2026-12-01\ninput = "0"\noutput = "0"\n')
    (error,) = _gates(remit)
    assert "prices.toml are not recorded" in error


def test_what_cannot_be_a_price_changes_nothing(remit: Run, root: Path) -> None:
    for arguments, said in (
        (("gpt-4o", "--input", "-1", "--output", "2"), "--input is '-1'"),
        (("gpt-4o", "--input", "1e3", "--output", "2"), "--input is '1e3'"),
        (("gpt-4o", "--input", "5000", "--output", "2"), "outside what is believable"),
        (("gpt-4o", "--input", "0.0000025", "--output", "2"), "not per token"),
        (("gpt-4o", "--input", "1.0000000001", "--output", "2"), "9 places"),
        (("gpt-4o-mni", "--input", "1", "--output", "2"), "Did you mean gpt-4o-mini?"),
    ):
        done = remit("price", "set", *arguments)
        assert done.returncode in (1, 2)
        assert said in done.stderr
        assert not (root / "prices.toml").exists()
        assert _changes(root) == []


def test_a_table_is_imported_whole_or_not_at_all(remit: Run, root: Path, work: Path) -> None:
    table = work / "mine.toml"
    head = 'version = 2026-12-01\n[models."gpt-4o"]\nprovider = "openai"\ndate = 2026-12-01\n'
    table.write_text(head + 'input = "2"\noutput = "8"\n')
    planned = parsed(remit("price", "import", table, "--dry-run", "--json"))
    assert (planned["entry"], planned["dry_run"]) == (None, True)
    assert not (root / "prices.toml").exists()
    assert parsed(remit("price", "diff", table, "--json"))["changes"] == planned["changes"]
    assert parsed(remit("price", "import", table, "--json"))["changes"] == planned["changes"]
    assert _gates(remit) == []
    kept = (root / "prices.toml").read_bytes()
    for bad, said in (
        ('inptu = "2"\noutput = "8"\n', "Did you mean input?"),
        ('input = "-2"\noutput = "8"\n', "must be US dollars"),
        ('input = "2"\noutput = "8"\n[models.new]\nprovider = "openai"\ndate = 2026-12-01\n'
         'input = "1"\noutput = "1"\n', "has no context_window"),
        (f"{'.'.join(['a'] * 3000)} = 1\n", "mine.toml is not valid TOML: it is nested too deeply"),
    ):  # fmt: skip
        table.write_text(head + bad)
        require_said(remit("price", "import", table), said)
    assert (root / "prices.toml").read_bytes() == kept
    assert len(_changes(root)) == 1


def test_litellms_list_is_imported(remit: Run, root: Path, work: Path) -> None:
    cost = {"input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05}
    sizes = {"max_input_tokens": 1000, "max_output_tokens": 100, "litellm_provider": "openai"}
    listed = work / "list.json"
    listed.write_text(json.dumps({"gpt-98": {**sizes, **cost}, "gpt-99": {**sizes, **cost}}))
    done = parsed(remit("price", "import", listed, "--models", "gpt-99", "--json"))
    assert [change["model"] for change in done["changes"]] == ["gpt-99"]
    shown = parsed(remit("price", "show", "gpt-99", "--json"))["price"]
    assert (shown["input"], shown["output"], shown["origin"]) == ("1.25", "10", "own")
    assert _gates(remit) == []


def test_a_price_that_a_package_brought_is_not_changed(remit: Run, root: Path) -> None:
    with (root / "remit.toml").open("a") as file:
        file.write('[budget]\nprices = "HOT/prices/prices.toml"\n')
    require_said(
        remit("price", "set", "gpt-4o", "--input", "2", "--output", "8"),
        "PKG-TOKEN-BUDGETER-001 installed",
    )
