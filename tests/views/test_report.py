"""The auditor's report: its data, its file, and what a browser says of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerEntry, NoSignerError, entry_id, instant
from remit.ledger.tlog import SignedCheckpoint, Signer, VerifierKey, verify_inclusion
from remit.ledger.tlog.merkle import leaf_hash
from remit.views import audit_report, read_usage, report_parts, report_script_hash
from remit.views.page import script
from remit.views.wording import nano_dollars, shown_value, visible
from tests.support.browser import Browser, find_browser
from tests.views.audit_story import SAID, tell_auditor

needs_browser = pytest.mark.skipif(find_browser() is None, reason="there is no chromium")

# All that the page writes out, markup, and what looks like an escape already.
_CODES = (
    *range(1, 32), *range(127, 160), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F),
    *range(0x2066, 0x206A), 0xFEFF, 0xFFFE, 0xFFFF,
)  # fmt: skip
MOVING = "".join(map(chr, _CODES))
HOSTILE = f"</script></li><!--<script><img src=x onerror=alert(1)>\"' &lt;\\x1b{MOVING}\U0001f600"


@pytest.fixture
def signer() -> Signer:
    return Signer.generate("example.com/log")


@pytest.fixture
def client(tmp_path: Path, signer: Signer) -> Iterator[LedgerClient]:
    with LedgerClient(tmp_path / "ledger.db", signer=signer) as client:
        yield client


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    # No network at all: a name or an address that is asked for leads nowhere.
    options = ("--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9")
    with Browser(tmp_path_factory.mktemp("browser") / "profile", *options) as browser:
        yield browser


def _report(client: LedgerClient, **more: Any) -> dict[str, Any]:
    checkpoint = SignedCheckpoint.parse(client.checkpoint())
    return audit_report(client, **{"checkpoint": checkpoint, **more})


def _page(client: LedgerClient, **more: Any) -> str:
    return "".join(report_parts(_report(client, **more)))


def _entries(report: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {one["name"]: list(one["entries"]) for one in report["sections"]}


def _table(report: dict[str, Any], name: str) -> dict[tuple[str, ...], dict[str, int]]:
    (table,) = [one for one in report["tables"] if one["name"] == name]
    return {tuple(row["of"]): row for row in table["rows"]}


NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)


@contextmanager
def _written(after: timedelta) -> Iterator[None]:
    """Entries have this time after noon."""
    with mock.patch("remit.ledger.appends.utc_now", return_value=instant(NOON + after)):
        yield


# -- data -------------------------------------------------------------------------------------


def test_it_lists_what_an_auditor_asks_for(client: LedgerClient, signer: Signer) -> None:
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
    assert report["verification"]["verified"] is True
    assert report["verification"]["erased"] > 0
    key = VerifierKey.parse(report["log"]["verifier_key"])
    assert hashlib.sha256(str(key).encode()).hexdigest() == report["log"]["fingerprint"]
    assert SAID not in json.dumps(rows)


def test_it_is_the_same_on_both_stores(target: str, signer: Signer) -> None:
    with LedgerClient(target, signer=signer) as client:
        with _written(timedelta()):
            tell_auditor(client)
        with _written(timedelta(hours=1)):
            tell_auditor(client, calls=3)
        report = _report(client, since=NOON + timedelta(minutes=30), most=2)
        found = _entries(report)
        head = SignedCheckpoint.parse(report["log"]["checkpoint"]).verify(signer.verifier_key)
        for row in (row for part in found.values() for row in part):
            path = [base64.b64decode(item) for item in row["proof"]]
            leaf = leaf_hash(row["record"].encode())
            verify_inclusion(leaf, row["seq"], head.size, path, head.root)
        assert {name: len(rows) for name, rows in found.items() if rows} == {
            "used": 2, "calls": 3, "debits": 1, "rejected": 2, "denied": 1, "granted": 1,
            "packages": 2, "keys": 3, "budgets": 1, "settings": 1, "learning": 3,
        }  # fmt: skip
        (total,) = _table(report, "total").values()
        assert (total["calls"], total["nano"]) == (7, 3_000_003 + 1_235_250_000_000)


@given(st.integers(-(10**18), 10**18))
def test_money_loses_nothing_in_words(nano: int) -> None:
    assert Decimal(re.sub("[$,]", "", nano_dollars(nano))) * 10**9 == nano


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
    with _written(timedelta(microseconds=-1)):
        before = tell_auditor(client)
    with _written(timedelta()):
        after = tell_auditor(client, calls=2)
    with _written(timedelta(minutes=15)):
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
    with pytest.raises(InvalidInputError, match=f"of {read:,} entries"):
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


def test_what_a_tier_may_not_write_counts_for_nothing(client: LedgerClient) -> None:
    forged = client.write(
        LedgerEntry("KEY_CREATED", "KEY-F", "CREATED", "forged",
                    metadata={"key_id": "KEY-F", "name": "f", "scope": {"tier": "ho1"}})
    )  # fmt: skip
    (row,) = _entries(_report(client))["keys"]
    assert (row["entry_id"], row["counts"]) == (forged, False)
    assert "count for nothing" in _page(client)


def test_without_a_key_there_is_no_report(tmp_path: Path, client: LedgerClient) -> None:
    checkpoint = SignedCheckpoint.parse(client.checkpoint())
    with (
        LedgerClient(tmp_path / "bare.db") as bare,
        pytest.raises(NoSignerError, match="no key"),
    ):
        audit_report(bare, checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""), ("x", "x"), (0, "0"), (False, "false"), (1.5e-7, "1.5e-7"), (1e21, "1e+21"),
        (["b", {"ü": 1, "a": None}], '["b",{"a":null,"ü":1}]'),
        ({"$content": "hmac-sha256:00", "bytes": 7}, "[content of 7 bytes, not included]"),
        ({"$messages": "00", "count": 2}, "[2 messages, not included]"),
        (["x" * 2000], "[JSON of 2004 bytes]"),
    ],
)  # fmt: skip
def test_values_in_words(value: Any, text: str) -> None:
    assert shown_value(value) == text


# -- the file ---------------------------------------------------------------------------------


class _Markup(HTMLParser):
    """What a page consists of."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._in = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script" and not attrs:
            self.scripts.append("")
        if tag == "style":
            self.styles.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script" and not self.tags[-1][1]:
            self.scripts[-1] += data
        if self._in == "style":
            self.styles[-1] += data


def test_one_file_that_runs_its_own_script_alone(client: LedgerClient) -> None:
    tell_auditor(client, said=HOSTILE)
    text = _page(client)
    markup = _Markup(text)
    (policy,) = [str(attrs["content"]) for _, attrs in markup.tags
                 if attrs.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    ((own,), (style,)) = markup.scripts, markup.styles
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()
              for one in (own, style)]  # fmt: skip
    assert policy.startswith(
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}';"
    )
    assert hashes[0] == report_script_hash()
    assert "unsafe" not in policy
    assert {tag for tag, _ in markup.tags} & {"img", "iframe", "object", "form", "svg"} == set()
    for tag, attrs in markup.tags:
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        assert attrs.get("href", "#")[:1] == "#" or attrs["href"] == "data:,"  # type: ignore[index]
        assert "src" not in attrs
        assert "style" not in attrs
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text)
    assert SAID not in text
    assert "</script" not in script("verify.js", "report.js")
    assert not re.search(r"(?i)https?://|@import|url\(", text)


def test_it_comes_in_parts(client: LedgerClient) -> None:
    tell_auditor(client, calls=50)
    report = _report(client)
    read = 0

    def counted(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        nonlocal read
        for row in rows:
            read += 1
            yield row

    for one in report["sections"]:
        one["entries"] = counted(one["entries"])
    written = ""
    for part in report_parts(report):
        # Of an entry that was not written yet nothing is read.
        assert read <= written.count('<li class="entry"') + 1
        written = "".join((written, part))
    assert read == written.count('<li class="entry"') > 60


# -- in a browser -----------------------------------------------------------------------------

_DONE = "['good', 'bad'].includes(document.getElementById('banner').dataset.state)"
_SAID = "document.getElementById('banner').innerText"


def _opened(browser: Browser, place: Path, text: str, **more: Any) -> str:
    """What the banner says in the end."""
    file = place / "report.html"
    file.write_text(text, "utf-8")
    browser.open(file.as_uri(), **more)
    browser.until(_DONE)
    assert browser.requests == []
    assert browser.complaints == []
    return str(browser.run(_SAID))


@needs_browser
@pytest.mark.parametrize("said", ["because", HOSTILE], ids=["plain", "hostile"])
def test_a_browser_verifies_it_without_a_network(
    client: LedgerClient, browser: Browser, tmp_path: Path, said: str
) -> None:
    ids = tell_auditor(client, said=said)
    _write_odd(client)
    client.erase(ids["call"], reason="asked for", requested_by="dpo")
    report = _report(client)
    count = sum(one["listed"] for one in report["sections"])
    banner = _opened(browser, tmp_path, _page(client))
    assert banner.startswith(f"Verified in your browser. All {count} entries"), banner
    assert "7 tables follow from them." in banner
    assert browser.run("document.querySelectorAll('.entry').length") == count
    assert browser.run("document.querySelectorAll('.entry button.proof.good').length") == count
    assert browser.run("document.querySelectorAll('.entry.wrong, .proof.bad').length") == 0
    # It shows a record on a click, hostile or not, and asks for the reader's own key.
    browser.run(f"document.querySelector('#{ids['KEY_REVOKED']} button').click()")
    record = str(browser.run(f"document.querySelector('#{ids['KEY_REVOKED']} pre').textContent"))
    assert client.read(ids["KEY_REVOKED"]).entry_hash in record
    assert visible(said)[:60] in record.replace('\\"', '"').replace("\\\\", "\\")
    for typed, tone in ((report["log"]["verifier_key"], "good"), ("another", "bad")):
        browser.run(f"""(() => {{
            const input = document.querySelector("#banner input");
            input.value = {json.dumps(typed)};
            input.dispatchEvent(new Event("input"));
        }})()""")
        shown = browser.run("document.querySelector('#banner .answer').className")
        assert shown == f"answer badge {tone}"
    assert browser.run("document.querySelectorAll('img').length") == 0


def _write_odd(client: LedgerClient) -> None:
    """What usage counts in ways of its own."""
    for event, metadata in (
        ("EXCHANGE", {"outcome": "success", "agent_id": "x" + "é" * 120, "input_tokens": 5}),
        ("EXCHANGE", {"model_id": {"a": 1}, "user_id": "\ufeffx" + "y" * 300, "cost_usd": -1.0}),
        ("EXCHANGE", {"cost_certainty": "sure", "output_tokens": 1.5, "input_tokens": -3}),
        ("BUDGET_DEBIT", {"scope": {"tier": "ho1"}, "cost_usd": 1.0}),
        ("BUDGET_DEBIT", {"scope": "key:K", "cost_usd": 2.0, "input_tokens": 7, "tier": "hot"}),
    ):
        client.write(LedgerEntry(event, "X", "X", "odd", metadata=metadata))


def _changed(text: str, old: str, new: str, after: str = "") -> str:
    """``text`` with the first ``old`` behind ``after`` changed; it has to be there."""
    place = text.index(old, text.index(after) if after else 0)
    return text[:place] + new + text[place + len(old) :]


def _node(text: str) -> str:
    """A hash of the proofs with one character changed."""
    place = text.index('id="nodes">["') + len('id="nodes">["') + 5
    return text[:place] + ("B" if text[place] != "B" else "C") + text[place + 1 :]


def _swapped(text: str, ids: dict[str, str]) -> str:
    """The data of two rows, each at the other's place."""
    parts = [re.search(f'id="{one}".*?json">(.*?)</script>', text, re.DOTALL)
             for one in (ids["call"], ids["failed"])]  # fmt: skip
    first, second = (part.group(1) for part in parts if part)
    return text.replace(first, "@@").replace(second, first).replace("@@", second)


_CHANGES: dict[str, tuple[Callable[[str, dict[str, str]], str], str, str]] = {
    "record": (
        lambda text, ids: _changed(text, "KEY-9", "KEY-8", f'json">{{"seq":{_seq(ids)},'),
        "KEY_REVOKED", "SHA-256"),
    "cell": (
        lambda text, ids: _changed(text, ">KEY-9<", ">KEY-8<", ids["KEY_REVOKED"]),
        "KEY_REVOKED", "/metadata/key_id"),
    "label": (
        lambda text, ids: _changed(text, "<dt>key id<", "<dt>no id<", ids["KEY_REVOKED"]),
        "KEY_REVOKED", "label"),
    "decision": (
        lambda text, ids: _changed(text, ">REVOKED<", ">CREATED<", ids["KEY_REVOKED"]),
        "KEY_REVOKED", "/decision"),
    "words beside": (
        lambda text, ids: _changed(text, "</dl>", "</dl>and all was well", ids["KEY_REVOKED"]),
        "KEY_REVOKED", "all was well"),
    "hash": (
        lambda text, ids: _changed(text, 'hash":"', 'hash":"0', f'id="{ids["KEY_REVOKED"]}"'),
        "KEY_REVOKED", "SHA-256"),
    "path": (
        lambda text, ids: _changed(text, '"path":[', '"path":[1,', f'id="{ids["KEY_REVOKED"]}"'),
        "KEY_REVOKED", "does not lead"),
    "data": (
        lambda text, ids: _changed(text, '{"seq"', '{seq"', f'id="{ids["KEY_REVOKED"]}"'),
        "KEY_REVOKED", "cannot be read"),
    "id": (
        lambda text, ids: text.replace(f'id="{ids["KEY_REVOKED"]}"', 'id="LED-0000ffff"'),
        "LED-0000ffff", "Its record is that of"),
    "two rows' data": (_swapped, "call", "Its record is that of"),
    "twice": (
        lambda text, ids: re.sub(
            f'(<li class="entry" id="{ids["KEY_REVOKED"]}".*?</li>)', r"\1\1", text,
            flags=re.DOTALL),
        "KEY_REVOKED", "listed twice"),
    "taken out": (
        lambda text, ids: re.sub(
            f'<li class="entry" id="{ids["failed"]}".*?</li>', "", text, flags=re.DOTALL),
        "calls", "entries are listed"),
    "another section": (
        lambda text, ids: _changed(text, 'data-events="KEY_CREATED KEY_REVOKED"',
                                   'data-events="KEY_CREATED"'),
        "KEY_REVOKED", "no entry for"),
    "note": (
        lambda text, ids: re.sub(r'(id="head".*?log\\n)\d', r"\g<1>9", text, flags=re.DOTALL),
        "log", "signature"),
    "note as shown": (
        lambda text, ids: re.sub(r'(id="note">example.com/log\n)\d', r"\g<1>9", text),
        "log", "note"),
    "fingerprint": (
        lambda text, ids: re.sub('(id="fingerprint">)....', r"\1zzzz", text), "log",
        "fingerprint"),
    "sum": (lambda text, ids: _changed(text, "$1,234.50<", "$1,234.51<", "sum-models"),
            "sum-models", "$1,234.50"),
    "name of a sum": (
        lambda text, ids: _changed(text, ">model-dear<", ">model-cheap<", "sum-models"),
        "sum-models", "model-cheap"),
    "line of a sum": (
        lambda text, ids: re.sub("<tr data-of='.\"model-dear\".'>.*?</tr>", "", text),
        "sum-models", "model-dear"),
    "headline": (
        lambda text, ids: _changed(text, ">11<", ">8<", 'data-total="calls"'),
        "the figures at the top", "11"),
}  # fmt: skip


def _seq(ids: dict[str, str]) -> int:
    return int(ids["KEY_REVOKED"][4:], 16)


@needs_browser
@pytest.mark.parametrize("change", _CHANGES)
def test_a_browser_names_what_was_changed(
    client: LedgerClient, browser: Browser, tmp_path: Path, change: str
) -> None:
    ids = tell_auditor(client, calls=7)
    text = _page(client)
    make, where, why = _CHANGES[change]
    other = make(text, ids)
    assert other != text
    banner = _opened(browser, tmp_path, other)
    assert banner.startswith("NOT VERIFIED."), banner
    name = ids.get(where, where)
    assert re.search(f"{re.escape(name)}: .*{re.escape(why)}", banner), banner
    if where in ids:
        tone = browser.run(f"document.querySelector('#{name}').className")
        assert tone == "entry wrong" or change == "twice"
        # All others are as they were.
        wrong = browser.run("document.querySelectorAll('.entry.wrong').length")
        assert wrong == {"two rows' data": 2, "twice": 0}.get(change, 1)


@needs_browser
def test_a_changed_hash_of_a_proof_names_the_entries_that_use_it(
    client: LedgerClient, browser: Browser, tmp_path: Path
) -> None:
    tell_auditor(client)
    text = _page(client)
    banner = _opened(browser, tmp_path, _node(text))
    assert banner.startswith("NOT VERIFIED."), banner
    wrong = browser.run("[...document.querySelectorAll('.entry.wrong')].map((one) => one.id)")
    used = [
        found[0] for found in re.findall(r'id="(LED-\w+)".*?"path":\[([\d,]*)\]', text, re.DOTALL)
        if "0" in found[1].split(",")
    ]  # fmt: skip
    assert wrong == used
    for one in used:
        assert f"{one}: The inclusion proof does not lead" in banner


@needs_browser
def test_sums_over_more_than_it_lists_are_not_called_verified(
    client: LedgerClient, browser: Browser, tmp_path: Path
) -> None:
    tell_auditor(client, calls=9)
    banner = _opened(browser, tmp_path, _page(client, most=2))
    assert banner.startswith("Verified in your browser.")
    assert "6 tables are sums that cannot be checked here." in banner
    basis = browser.run("document.getElementById('basis-models').textContent")
    assert "cannot check these figures" in basis


@needs_browser
def test_it_reads_well_without_scripts(
    client: LedgerClient, browser: Browser, tmp_path: Path
) -> None:
    tell_auditor(client)
    file = tmp_path / "report.html"
    file.write_text(_page(client), "utf-8")
    browser.open(file.as_uri(), scripts=False)
    words = str(browser.run("document.body.innerText"))
    assert "Not checked yet." in words
    assert "verify_standalone.py" in words
    assert "verified" not in browser.run("document.getElementById('banner').innerText")
    for part in ("What ran", "Who asked", "What it cost", "What was refused", "What changed",
                 "What this report does not show", "Art. 26", "A.6.2.8", "E015"):  # fmt: skip
        assert part in words, part
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
    file = tmp_path / "report.html"
    file.write_text(text, "utf-8")
    browser.open(file.as_uri())
    browser.until(f"{_SAID}.includes('Nothing was checked.')")
    assert "Ed25519" in browser.run(_SAID)
    assert browser.run("document.querySelectorAll('.proof.good').length") == 0
    assert browser.run("document.getElementById('banner').className") == "banner wait"
