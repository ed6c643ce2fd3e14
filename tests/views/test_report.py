"""The auditor's report: its data, its file, and what a browser says of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    entry_id,
    instant,
)
from remit.ledger.tlog import (
    COSIGNATURE,
    SignedCheckpoint,
    Signer,
    VerifierKey,
    leaf_hash,
    verify_inclusion,
)
from remit.views import audit_report, read_usage, report_parts, report_script_hash
from remit.views.page import script
from remit.views.wording import nano_dollars, visible
from tests.ledger.segments.writing import cut_off, sessions
from tests.support.browser import Browser, needs_browser
from tests.views.report_edits import whole_range_of
from tests.views.story import SAID, tell_auditor
from tests.views.test_page import Page

# All that the page writes out, markup, and what looks like an escape already.
_CODES = (
    *range(1, 32), *range(127, 160), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F),
    *range(0x2066, 0x206A), 0xFEFF, 0xFFFE, 0xFFFF,
)  # fmt: skip
MOVING = "".join(map(chr, _CODES))
HOSTILE = f"</script></li><!--<script><img src=x onerror=alert(1)>\"' &lt;\\x1b{MOVING}\U0001f600"


def _report(client: LedgerClient, **more: Any) -> dict[str, Any]:
    checkpoint = SignedCheckpoint.parse(client.checkpoint())
    return audit_report(client, **{"checkpoint": checkpoint, **more})


def _page(client: LedgerClient, **more: Any) -> str:
    return "".join(report_parts(client, _report(client, **more)))


def _entries(report: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {one["name"]: list(one["entries"]) for one in report["sections"]}


def _table(report: dict[str, Any], name: str) -> dict[tuple[str, ...], dict[str, int]]:
    (table,) = [one for one in report["tables"] if one["name"] == name]
    return {tuple(row["of"]): row for row in table["rows"]}


NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)


@contextmanager
def written(after: timedelta) -> Iterator[None]:
    """Entries have this time after noon."""
    with mock.patch("remit.ledger.transaction.utc_now", return_value=instant(NOON + after)):
        yield


def test_it_lists_what_an_auditor_asks_for(target: str, signer: Signer) -> None:
    with LedgerClient(target, signer=signer) as client:
        _check_lists(client, signer)


def _check_lists(client: LedgerClient, signer: Signer) -> None:
    ids = tell_auditor(client)
    client.erase(ids["call"], reason="asked for", requested_by="dpo")
    report = _report(client, verification=client.verify())
    found = _entries(report)
    events = {name: {row["event_type"] for row in rows} for name, rows in found.items() if rows}
    assert events == {
        "calls": {"EXCHANGE", "EXCHANGE_ORPHANED"}, "debits": {"BUDGET_DEBIT"},
        "rejected": {"PROMPT_REJECTED"}, "denied": {"APPROVAL_DENIED"},
        "granted": {"APPROVAL_GRANTED"}, "packages": {"INSTALLED", "REMOVED"},
        "keys": {"KEY_CREATED", "KEY_REVOKED"}, "budgets": {"BUDGET_ALLOCATED"},
        "settings": {"CONFIG_CHANGED"}, "erasures": {"ERASURE"},
        "learning": {"SIGNAL_ADOPTED", "SIGNAL_REJECTED", "SIGNAL_ROLLED_BACK"},
    }  # fmt: skip
    rows = [row for part in found.values() for row in part]
    assert len({row["entry_id"] for row in rows}) == len(rows)
    head = SignedCheckpoint.parse(report["log"]["checkpoint"]).verify(signer.verifier_key)
    for row in rows:
        record = row["record"].encode()
        assert record == client.read_record(row["entry_id"])
        assert hashlib.sha256(record).hexdigest() == row["entry_hash"]
        path = [base64.b64decode(item) for item in row["proof"]]
        verify_inclusion(leaf_hash(record), row["seq"], head.size, path, head.root)
    for one in report["sections"]:
        assert one["listed"] == one["there"] == len(found[one["name"]])
    refused = _table(report, "refusals")
    assert refused["PROMPT_REJECTED", "BUDGET_EXHAUSTED"]["entries"] == 2
    (total,) = _table(report, "total").values()
    assert (total["calls"], total["nano"]) == (9, 1_000_001 * 10 + 1_235_250_000_000)
    assert report["verification"]["verified"] is True
    assert report["verification"]["erased"] > 0
    key = VerifierKey.parse(report["log"]["verifier_key"])
    assert hashlib.sha256(str(key).encode()).hexdigest() == report["log"]["fingerprint"]
    assert SAID not in json.dumps(rows)


def test_money_is_added_up_exactly(client: LedgerClient) -> None:
    tell_auditor(client)
    report = _report(client)
    (total,) = _table(report, "total").values()
    assert total["calls"] == 9
    assert total["failed"] == 2  # an error, and one whose process died
    outside = 250_000_000
    assert total["nano"] == 1_000_001 * 10 + 1_234_500_000_000 + 500_000_000 + outside
    assert total["unpriced_calls"] == 1
    certain = _table(report, "certainty")
    assert certain[("measured",)]["nano"] == 10_000_010 + outside
    assert certain[("estimated",)]["nano"] == 1_234_500_000_000
    assert certain[("upper_bound",)]["nano"] == 500_000_000
    assert certain[("unpriced",)]["unpriced_calls"] == 1
    for name in ("agents", "contracts", "models", "callers", "certainty"):
        lines = _table(report, name).values()
        assert sum(line["nano"] for line in lines) == total["nano"], name
        assert sum(line["calls"] for line in lines) == total["calls"], name
    assert _table(report, "outside")[("session:because",)]["nano"] == outside
    [usage] = read_usage(client).rows
    assert (total["calls"], total["nano"]) == (usage.calls, usage.nano)
    assert nano_dollars(1_234_500_000_001) == "$1,234.500000001"
    assert nano_dollars(0) == "$0.00"
    assert nano_dollars(-1_500_000_000) == "-$1.50"


def test_a_range_takes_what_is_in_its_quarters_of_an_hour(client: LedgerClient) -> None:
    with written(timedelta(microseconds=-1)):
        before = tell_auditor(client)
    with written(timedelta()):
        after = tell_auditor(client, calls=2)
    with written(timedelta(minutes=15)):
        tell_auditor(client)
    minutes = timedelta(minutes=4)
    report = _report(client, since=NOON + minutes, until=NOON + 2 * minutes)
    assert report["since"] == "2026-03-29T12:00:00.000000Z"
    assert report["until"] == "2026-03-29T12:15:00.000000Z"
    assert report["range"]["first_id"] > max(before.values())
    found = _entries(report)
    listed = [row["entry_id"] for name, rows in found.items() if name != "used" for row in rows]
    assert min(listed) > max(before.values())
    assert max(listed) <= max(after.values())
    (total,) = _table(report, "total").values()
    assert total["calls"] == len(found["calls"]) == 6
    # Whose keys these are was said before, and after the key was made again in the range.
    assert {row["entry_id"] for row in found["used"]} <= set(before.values()) | {entry_id(0)}
    assert len(found["used"]) == 2
    assert _entries(_report(client, since=NOON + timedelta(days=1)))["calls"] == []
    last = datetime.max.replace(tzinfo=UTC)
    assert _report(client, until=last)["range"]["entries"] == client.count()


def test_no_more_calls_are_listed_than_asked_for(client: LedgerClient) -> None:
    tell_auditor(client, calls=30)
    report = _report(client, most=3)
    found = _entries(report)
    calls = [row for row in found["calls"] if row["event_type"] == "EXCHANGE"]
    every = [one.id for one in client.read_by_event_type("EXCHANGE")]
    assert [row["entry_id"] for row in calls] == every[-3:]
    assert len(found["keys"]) == 3  # what governs is always listed
    (table,) = [one for one in report["tables"] if one["name"] == "agents"]
    assert not table["is_whole"]
    assert sum(row["calls"] for row in table["rows"]) == 34
    assert len(_entries(_report(client, most=0))["calls"]) == 0
    read = sum(one["listed"] for one in report["sections"])
    assert read == sum(map(len, found.values()))
    assert _report(client, most=3, at_most=read)["most"] == 3
    with pytest.raises(InvalidInputError, match=f"read {read:,} entries"):
        _report(client, most=3, at_most=read - 1)


def test_what_came_after_its_checkpoint_is_left_out(client: LedgerClient) -> None:
    tell_auditor(client)
    checkpoint = SignedCheckpoint.parse(client.checkpoint())
    tell_auditor(client, calls=9, said="later")
    report = audit_report(client, checkpoint=checkpoint)
    assert report["range"]["entries"] == checkpoint.checkpoint.size
    rows = [row for part in _entries(report).values() for row in part]
    assert max(row["seq"] for row in rows) < checkpoint.checkpoint.size
    (total,) = _table(report, "total").values()
    assert total["calls"] == 9
    assert "later" not in json.dumps(report["tables"])


def test_an_entry_that_its_tier_may_not_write_is_marked(client: LedgerClient) -> None:
    forged = client.write(
        LedgerEntry("KEY_CREATED", "KEY-F", "CREATED", "forged",
                    metadata={"key_id": "KEY-F", "name": "f", "scope": {"tier": "ho1"}})
    )  # fmt: skip
    (row,) = _entries(_report(client))["keys"]
    assert (row["entry_id"], row["counts"]) == (forged, False)


def test_one_file_that_runs_its_own_script_alone(client: LedgerClient) -> None:
    tell_auditor(client, said=HOSTILE)
    text = _page(client)
    page = Page(text)
    (policy,) = [str(attrs["content"]) for _, attrs in page.elements
                 if attrs.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    (own,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    assert page.elements.count(("script", {})) == 1
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()
              for one in (own, page.style)]  # fmt: skip
    assert policy.startswith(
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}';"
    )
    assert hashes[0] == report_script_hash()
    assert "unsafe" not in policy
    assert {tag for tag, _ in page.elements} & {"img", "iframe", "object", "form", "svg"} == set()
    for tag, attrs in page.elements:
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        assert attrs.get("href", "#")[:1] == "#" or attrs["href"] == "data:,"  # type: ignore[index]
        assert "src" not in attrs
        assert "style" not in attrs
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text)
    assert SAID not in text
    assert "</script" not in script("verify.js", "report.js")
    assert not re.search(r"(?i)https?://|@import|url\(", text)


_STATE = "document.getElementById('banner').dataset.state"
_DONE = f"['good', 'bad'].includes({_STATE})"
_SAID = "document.getElementById('banner').innerText"


def _opened(browser: Browser, place: Path, text: str, **more: Any) -> str:
    """Return the verdict of the page, once there is one."""
    file = place / "report.html"
    file.write_text(text, "utf-8")
    browser.open(file.as_uri(), **more)
    browser.until(_DONE)
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.run("new Promise((done) => setTimeout(done, 50))")
    assert browser.requests == []
    assert browser.complaints == []
    return str(browser.run(_SAID))


def _shown_tables(browser: Browser) -> dict[str, list[list[str]]]:
    """Return the tables of sums as the page shows them."""
    found: dict[str, list[list[str]]] = browser.run("""Object.fromEntries(
        [...document.querySelectorAll("table.figures")].map((table) => [
            table.id.slice(4),
            [...table.tBodies[0].rows].map((row) => [...row.cells].map((one) => one.textContent)),
        ]))""")
    return {name: _comparable(rows) for name, rows in found.items()}


def _comparable(rows: list[list[str]]) -> list[list[str]]:
    """Return rows without their order, and without the ends of long names, which data cuts."""
    return sorted([text[:100] for text in row] for row in rows)


def _told_tables(report: dict[str, Any]) -> dict[str, list[list[str]]]:
    """Return the same from the report's data."""
    usage = ("calls", "failed", "nano", "unpriced_calls", "input_tokens", "output_tokens")
    columns = {"refusals": ("entries",), "outside": ("entries", "nano")}
    return {
        table["name"]: _comparable([
            [*(visible(name, lines=True) or "(none)" for name in row["of"]),
             *(nano_dollars(row[name]) if name == "nano" else f"{row[name]:,}"
               for name in columns.get(table["name"], usage))]
            for row in table["rows"]
        ])
        for table in report["tables"] if table["by"] and table["rows"]
    }  # fmt: skip


def _ids(browser: Browser, place: str = "main") -> set[str]:
    found = browser.run(f"[...document.querySelectorAll('{place} .entry')].map((one) => one.id)")
    assert len(set(found)) == len(found)
    return set(found)


@needs_browser
@pytest.mark.parametrize("said", ["because", HOSTILE], ids=["plain", "hostile"])
def test_a_browser_shows_what_is_proven(
    target: str, signer: Signer, browser: Browser, tmp_path: Path, said: str
) -> None:
    with LedgerClient(target, signer=signer) as client:
        ids = tell_auditor(client, said=said)
        _write_odd(client)
        client.erase(ids["call"], reason="asked for", requested_by="dpo")
        report = _report(client, verification=client.verify())
        banner = _opened(browser, tmp_path, _page(client))
        assert banner.startswith("Verified in your browser."), banner
        assert f"under a checkpoint of {client.count()} entries" in banner
        assert _ids(browser) == {entry.id for entry in client.read_all()}
        assert _shown_tables(browser) == _told_tables(report)
        for section in report["sections"]:
            if section["is_of_range"]:
                listed = [entry_id(seq) for seq in section["seqs"]]
                assert sorted(_ids(browser, f"#{section['name']}")) == listed, section["name"]
        words = str(browser.run("document.querySelector('.range').innerText"))
        assert words.startswith("Complete. The range is LED-00000000 to "), words
        # A record is shown on a click, hostile or not.
        browser.run(f"document.querySelector('#{ids['KEY_REVOKED']} button').click()")
        record = str(
            browser.run(f"document.querySelector('#{ids['KEY_REVOKED']} pre').textContent")
        )
        assert client.read(ids["KEY_REVOKED"]).entry_hash in record
        assert visible(said)[:60] in record.replace('\\"', '"').replace("\\\\", "\\")
        # The reader's own key is compared.
        for typed, tone in ((report["log"]["verifier_key"], "good"), ("another", "bad")):
            assert _answer(browser, typed)[0] == f"answer badge {tone}"
        assert browser.run("document.querySelectorAll('img').length") == 0


def _answer(browser: Browser, typed: str) -> tuple[str, str]:
    """Type a key, and return how the page answers."""
    browser.run(f"""(async () => {{
        const input = document.querySelector("#banner input");
        input.value = {json.dumps(typed)};
        input.dispatchEvent(new Event("input"));
        await new Promise((done) => setTimeout(done, 100));
    }})()""")
    answer = "document.querySelector('#banner .answer')"
    return browser.run(f"{answer}.className"), browser.run(f"{answer}.textContent")


def _write_odd(client: LedgerClient) -> None:
    """Write entries that usage counts in ways of its own."""
    for event, metadata in (
        ("EXCHANGE", {"outcome": "success", "agent_id": "x" + "é" * 90, "input_tokens": 5}),
        ("EXCHANGE", {"model_id": {"a": 1}, "user_id": "\ufeffx", "cost_usd": -1.0}),
        ("EXCHANGE", {"cost_certainty": "sure", "output_tokens": 1.5, "input_tokens": -3}),
        ("EXCHANGE", {"charged_to": ["user:u", "key:KEY-7"], "cost_usd": 0.0000000005}),
        ("EXCHANGE", {"key_id": "", "charged_to": ["key:KEY-8"], "cost_usd": 2e9}),
        ("BUDGET_DEBIT", {"scope": {"tier": "ho1"}, "cost_usd": 1.0}),
        ("BUDGET_DEBIT", {"scope": "key:K", "cost_usd": 2.0, "input_tokens": 7, "tier": "hot"}),
        ("constructor", {"cost_usd": 2.0, "__proto__": {"tier": "ho1"}}),
    ):
        client.write(LedgerEntry(event, "X", "X", "odd", metadata=metadata))


@needs_browser
def test_a_range_of_time_is_proven_by_its_neighbours(
    client: LedgerClient, browser: Browser, tmp_path: Path
) -> None:
    with written(timedelta()):
        before = tell_auditor(client)
    with written(timedelta(minutes=30)):
        first = client.write(LedgerEntry("NOTE", "X", "X", "x"))
        with written(timedelta(hours=-5)):
            behind = client.write(LedgerEntry("NOTE", "X", "X", "by a clock that was set back"))
        inside = tell_auditor(client, calls=2)
    with written(timedelta(minutes=60)):
        after = client.write(LedgerEntry("NOTE", "X", "X", "x"))
    limits = {"since": NOON + timedelta(minutes=30), "until": NOON + timedelta(minutes=45)}
    banner = _opened(browser, tmp_path, _page(client, **limits))
    assert banner.startswith("Verified in your browser."), banner
    words = str(browser.run("document.querySelector('.range').innerText"))
    assert words.startswith("Complete."), words
    assert f"The entry before the range is {max(before.values())}" in words
    assert f"The entry after it is {after} (2026-03-29T13:00:00.000000Z)" in words
    assert "1 entry between has a time outside the range" in words
    listed = _ids(browser, "main > :not(#stated)")
    assert behind not in listed
    assert min(listed) == first
    assert inside["call"] in listed
    assert _shown_tables(browser) == _told_tables(_report(client, **limits))
    # The keys of the range were made before it.
    assert _ids(browser, "#chosen") <= {before["KEY_CREATED"], entry_id(0)}


@needs_browser
def test_a_selection_of_a_long_range_says_that_it_is_one(
    client: LedgerClient, browser: Browser, tmp_path: Path
) -> None:
    tell_auditor(client, calls=9)
    note = LedgerEntry("NOTE", "SUB-1", "KEPT", "a note")
    for _ in range(whole_range_of(_page(client)) // 2_000):
        client.write_many([note] * 2_000)
    report = _report(client, most=2)
    banner = _opened(browser, tmp_path, _page(client, most=2))
    assert banner.startswith("Verified in your browser."), banner
    words = str(browser.run("document.querySelector('.range').innerText"))
    assert words.startswith("Not complete: a selection."), words
    assert "cannot show that the maker left no other out" in words
    assert f"has {sum(one['listed'] for one in report['sections'])} entries of it" in words
    assert browser.run("document.querySelector('.sums dd').textContent") == "3"
    assert len(_ids(browser)) < report["range"]["entries"]
    stated = str(browser.run("document.getElementById('stated').innerText"))
    assert f"Sums over all {client.count():,} entries of the range: 13 calls" in stated


@needs_browser
def test_archived_entries_are_named_as_missing(
    client: LedgerClient, browser: Browser, tmp_path: Path
) -> None:
    sessions(client, 66, leading=0)
    tell_auditor(client)
    done = cut_off(client, tmp_path / "archive")
    gone = done.entries
    assert gone > 100, done
    banner = _opened(browser, tmp_path, _page(client))
    assert banner.startswith("Verified in your browser."), banner
    words = str(browser.run("document.querySelector('.range').innerText"))
    assert words.startswith("Not complete: entries were archived."), words
    assert f"{gone} entries are not in this file" in words
    assert f"{gone} entries before LED-00000100 were archived. The file cannot show which" in words
    assert _ids(browser) == {entry.id for entry in client.read_all()}


@needs_browser
def test_a_witness_key_is_checked_by_the_page(
    client: LedgerClient, browser: Browser, tmp_path: Path
) -> None:
    tell_auditor(client)
    witness = Signer.generate("witness.example/w1", COSIGNATURE)
    other = Signer.generate("witness.example/w1", COSIGNATURE)
    signed = SignedCheckpoint.parse(client.checkpoint())
    signed = signed.with_signatures([signed.cosign(witness)])
    banner = _opened(browser, tmp_path, _page(client, checkpoint=signed))
    assert banner.startswith("Verified in your browser.")
    kind, text = _answer(browser, str(witness.verifier_key))
    assert kind == "answer badge good"
    assert text.startswith("This witness cosigned the checkpoint at 20")
    for key in (other.verifier_key, str(witness.verifier_key)[:-1], "witness.example/w1"):
        assert _answer(browser, str(key))[0] == "answer badge bad", key


@needs_browser
def test_without_scripts_the_file_says_that_it_is_not_verified(
    client: LedgerClient, browser: Browser, tmp_path: Path
) -> None:
    tell_auditor(client)
    file = tmp_path / "report.html"
    file.write_text(_page(client), "utf-8")
    browser.open(file.as_uri(), scripts=False)
    words = str(browser.run("document.body.innerText"))
    assert "NOT VERIFIED. The script of this file has not run." in words
    assert "verify_standalone.py" in words
    assert "Verified" not in words
    for entry in client.read_all():
        assert entry.id in words
    assert browser.complaints == []
    browser.open("about:blank")


@needs_browser
def test_a_browser_that_cannot_check_says_so(
    client: LedgerClient, browser: Browser, tmp_path: Path
) -> None:
    tell_auditor(client)
    # As an older browser: the script that takes Ed25519 away is put before the page's own.
    text = _page(client)
    first = "crypto.subtle.importKey = () => Promise.reject(new DOMException('no', 'x'));"
    digest = base64.b64encode(hashlib.sha256(first.encode()).digest()).decode()
    text = text.replace("script-src '", f"script-src 'sha256-{digest}' '", 1)
    text = text.replace("</title>", f"</title><script>{first}</script>", 1)
    banner = _opened(browser, tmp_path, text)
    assert banner.startswith("NOT VERIFIED.")
    assert "Ed25519" in banner
    assert _ids(browser) == set()
