"""Extracts and indexes: an omitted entry is named by every verifier, and a lying index is found."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remit.ledger import (
    EntryArchivedError,
    LedgerClient,
    LedgerEntry,
    LedgerError,
    LedgerFormatError,
    check_indexes,
    entry_id,
    make_extract,
    read_extract,
)
from remit.ledger.tlog import Signer
from remit.views.page import script
from tests.ledger.segments.writing import cut_off, sessions
from tests.support.browser import Browser, find_browser
from tests.support.soak import sample
from tests.support.standalone import load_standalone
from tests.support.stores import SIGNER, outside

KEY = SIGNER.verifier_key
SESSION, ORDER = "SES-0003", "WO-0003"


class Omission(NamedTuple):
    """An extract without one record.

    Attributes:
        data: the file.
        missing: the id that a verifier must name; empty for a part of an index.
    """

    data: str
    missing: str


def write_run(ledger: LedgerClient, number: int, turns: int = 3) -> None:
    """Write a session of one order, in which tools and models are called."""
    run = {"session_id": f"SES-{number:04d}", "work_order_id": f"WO-{number:04d}"}

    def write(event: str, **more: Any) -> str:
        metadata = {"provenance": {"agent_id": "a", **run}, **more}
        return ledger.write(LedgerEntry(event, "S", event, "r", metadata=metadata))

    write("SESSION_START")
    write("WO_EXECUTING")
    for turn in range(turns):
        dispatch = write("DISPATCH")
        exchange = write("EXCHANGE", dispatch_entry_id=dispatch)
        write("LLM_CALL", exchange_entry_id=exchange)
        key = f"{number}/{turn}"
        request = write("APPROVAL_REQUESTED", idempotency_key=key, tool_id="refund")
        write("APPROVAL_GRANTED", request_id=request, tool_id="refund")
        write("TOOL_INTENT", idempotency_key=key, tool_id="refund", approval=request)
        write("TOOL_CALL", idempotency_key=key, tool_id="refund", arguments={"order": turn})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LedgerClient]:
    with LedgerClient(tmp_path / "ledger.db", signer=SIGNER) as client:
        yield client


def without(ledger: LedgerClient, whole: dict[str, Any], at: int, *, fitting: bool) -> Omission:
    """Leave out a record; ``fitting`` computes the tree hashes anew, as a maker could."""
    records = [*whole["records"]]
    left_out = json.loads(records.pop(at))
    hashes = whole["hashes"]
    if fitting:
        seqs = [json.loads(one)["seq"] for one in records]
        size = int(whole["checkpoint"].split("\n")[1])
        found = ledger.checkpoints.multiproof(seqs, size)
        hashes = [base64.b64encode(one).decode() for one in found]
    missing = "" if left_out["event_type"] == "INDEXED" else left_out["id"]
    return Omission(json.dumps({**whole, "records": records, "hashes": hashes}), missing)


def omissions(ledger: LedgerClient) -> Iterator[Omission]:
    for number in range(21):
        write_run(ledger, number)
    kinds: list[dict[str, Any]] = [
        {"session_id": f"SES-{number:04d}"} for number in range(0, 21, 2)
    ]
    kinds += [{"work_order_id": f"WO-{number:04d}"} for number in range(1, 21, 4)]
    kinds += [{"first": at, "end": at + 20} for at in range(0, 200, 40)]
    actions = [one.id for one in ledger.query(event_type="TOOL_CALL")]
    kinds += [{"entry": one} for one in actions[:12]]
    for of in kinds:
        whole = make_extract(ledger, of)
        read_extract(json.dumps(whole), KEY)
        for at in range(len(whole["records"])):
            for fitting in (False, True):
                yield without(ledger, whole, at, fitting=fitting)


def named(cases: list[Omission], read: Callable[[str], str]) -> None:
    """Require that a verifier refuses each case, and names what is missing."""
    for data, missing in cases:
        said = read(data)
        assert (missing in said) if missing else "index" in said, (missing, said)
        assert "missing" in said
    print(f"{len(cases)} of {len(cases)} omissions named")


def refused(read: Callable[[], object]) -> str:
    with pytest.raises((LedgerFormatError, ValueError)) as error:
        read()
    return str(error.value)


@pytest.mark.soak
def test_every_omission_is_named(ledger: LedgerClient, tmp_path: Path) -> None:
    cases = list(sample(list(omissions(ledger)), 40))
    standalone = load_standalone()
    named(cases, lambda data: refused(lambda: read_extract(data, KEY)))
    named(cases, lambda data: refused(lambda: standalone.check_extract(json.loads(data), str(KEY))))
    if find_browser() is None:
        pytest.skip("there is no chromium")
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><script>{script('verify.js')}</script>", "utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.open(page.as_uri())

        def read(data: str) -> str:
            text, key = json.dumps(data), json.dumps(str(KEY))
            found = browser.run(f"RemitProof.extract(RemitProof.read({text}), {key})")
            assert found["state"] == "failed"
            return str(found["message"])

        named(cases, read)


def test_a_false_index_is_refused_by_all_readers(ledger: LedgerClient, tmp_path: Path) -> None:
    write_run(ledger, 3, turns=2)
    whole = make_extract(ledger, {"session_id": SESSION})
    true = json.loads(whole["records"][-1])["metadata"]
    cases = [json.dumps(whole)]
    *others, row = true["actions"]
    for changed in ([row[0], *row[2:]], [row[0], *sorted({*row[1:], 2})]):  # less, and a dispatch
        false = {**true, "actions": [*others, changed]}
        ledger.write(LedgerEntry("INDEXED", SESSION, "INDEXED", "x", metadata=false))
        cases.append(json.dumps(make_extract(ledger, {"session_id": SESSION})))
    standalone = load_standalone()
    read_extract(cases[0], KEY)
    for data in cases[1:]:
        assert "index-actions" in refused(lambda: read_extract(data, KEY))  # noqa: B023
        check = partial(standalone.check_extract, json.loads(data), str(KEY))
        assert "index-actions" in refused(check)
    if find_browser() is None:
        pytest.skip("there is no chromium")
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><script>{script('verify.js')}</script>", "utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.open(page.as_uri())
        read = f"(async (t) => RemitProof.extract(RemitProof.read(t), {json.dumps(str(KEY))}))"
        found = [browser.run(f"{read}({json.dumps(data)})") for data in cases]
    assert [(one["state"], one["step"]) for one in found] == [
        ("verified", ""), ("failed", "index"), ("failed", "index"),
    ]  # fmt: skip


def lies(ledger: LedgerClient) -> dict[str, dict[str, Any]]:
    """Indexes that a holder of the key could write, and the fault of each."""
    write_run(ledger, 3)
    write_run(ledger, 4)
    whole = read_extract(json.dumps(make_extract(ledger, {"session_id": SESSION})), KEY)
    seqs, actions = sorted(whole.records), [*whole.actions]
    true = {"of": {"session_id": SESSION}, "entries": seqs, "actions": actions, "part": 1,
            "parts": 1}  # fmt: skip
    last, other = actions[-1][0], seqs[-1] + 1
    return {
        f"does not name {entry_id(last)}": {**true, "entries": seqs[:-1], "actions": actions[:-1]},
        f"names {entry_id(other)}": {**true, "entries": [*seqs, other]},
        "other actions": {**true, "actions": actions[:-1]},
        "other actions than": {**true, "actions": [*actions[:-1], actions[-1][:-1]]},
        "malformed": {**true, "part": 0},
        "malformed: an": {**true, "entries": seqs[::-1]},
        "parts of the index": {**true, "parts": 2},
    }


def test_a_lying_index_is_found_by_every_reader_of_the_whole(
    ledger: LedgerClient, tmp_path: Path
) -> None:
    standalone = load_standalone()
    for number, (said, metadata) in enumerate(lies(ledger).items()):
        place = tmp_path / f"{number}.db"
        with LedgerClient(place, signer=SIGNER) as lying:
            write_run(lying, 3)
            write_run(lying, 4)
            lying.write(LedgerEntry("INDEXED", SESSION, "INDEXED", "r", metadata=metadata))
            found = [text for _, text in check_indexes(lying, False)]
            assert any(said in text for text in found), (said, found)
            lying.export(tmp_path / "e.jsonl")
        with LedgerClient(tmp_path / f"i{number}.db") as empty:
            with pytest.raises(LedgerFormatError, match=r"\(index-"):
                empty.import_jsonl(tmp_path / "e.jsonl", key=KEY)
            assert empty.count() == 0
        if "other actions" not in said:
            with pytest.raises(ValueError, match=r"\(index-"):
                standalone.check_export(str(tmp_path / "e.jsonl"), str(KEY), None)


ONE = {"session_id": "SES-1"}
TOOL = {**ONE, "tool_id": "look", "status": "ok", "idempotency_key": "k"}
TOOLS = (("SESSION_START", ONE), ("TOOL_CALL", TOOL), ("TOOL_CALL", TOOL))
GRANTED = ("APPROVAL_GRANTED", {**ONE, "request_id": "LED-00000009", "decided_by": "Ada"})
REQUEST = ("APPROVAL_REQUESTED", {**ONE, "idempotency_key": "k"})


@pytest.mark.parametrize(
    ("entries", "actions", "refused"),
    [
        (TOOLS, [[1, 0], [2, 0]], ""),
        (TOOLS, [[2, 0], [1, 0]], "both"),
        (TOOLS, [[1, 0], [2, 0], [2, 0]], "both"),
        (TOOLS, [[1, 0], [2, 0, 1]], "both"),
        (TOOLS, [[2, 0]], "run"),
        ((TOOLS[0], GRANTED, TOOLS[2]), [[2, 0]], ""),
        ((GRANTED, REQUEST, TOOLS[2]), [[2, 0, 1]], "both"),
        ((REQUEST, ("APPROVAL_GRANTED", {**ONE, "request_id": "LED-00000000"}), TOOLS[2]),
         [[2, 0, 1]], ""),
        ((TOOLS[0], ("DISPATCH", ONE), ("EXCHANGE", {**ONE, "dispatch_entry_id": "LED-00000001"})),
         [[2, 0, 1]], ""),
        ((TOOLS[0], ("NOTE", ONE), TOOLS[2]), [[1], [2, 0]], "run"),
    ],
)  # fmt: skip
def test_a_lying_index_in_an_extract_is_refused_by_both_verifiers(
    ledger: LedgerClient, entries: Any, actions: list[list[int]], refused: str
) -> None:
    """``run`` is a lie that an extract of the action does not show."""
    index = {"of": ONE, "entries": [0, 1, 2], "actions": actions, "part": 1, "parts": 1}
    for event, metadata in (*entries, ("INDEXED", index)):
        ledger.write(LedgerEntry(event, "SES-1", event, "r", metadata=metadata))
    check = load_standalone().check_extract
    for of, lies in ((ONE, ("run", "both")), ({"entry": "LED-00000002"}, ("both",))):
        whole = make_extract(ledger, of)
        for read in (lambda one: read_extract(json.dumps(one), KEY),
                     lambda one: check(one, str(KEY))):  # fmt: skip
            if refused in lies:
                with pytest.raises((LedgerFormatError, ValueError), match="the index"):
                    read(whole)
            else:
                read(whole)


def test_an_index_of_a_worker_proves_nothing(ledger: LedgerClient) -> None:
    write_run(ledger, 3)
    metadata = {"of": {"session_id": SESSION}, "entries": [0], "actions": [], "part": 1, "parts": 1,
                "scope": {"tier": "ho1"}}  # fmt: skip
    ledger.write(LedgerEntry("INDEXED", SESSION, "INDEXED", "r", metadata=metadata))
    with pytest.raises(LedgerError, match="INDEXED"):
        ledger.scoped(tier="ho1", work_order_id=ORDER).write(LedgerEntry("INDEXED", "S", "D", "r"))
    whole = make_extract(ledger, {"session_id": SESSION})
    assert len(read_extract(json.dumps(whole), KEY).records) == ledger.count() - 2


def test_another_log_and_an_older_state(ledger: LedgerClient, tmp_path: Path) -> None:
    write_run(ledger, 3)
    old = make_extract(ledger, {"session_id": SESSION})
    write_run(ledger, 3)
    new = make_extract(ledger, {"session_id": SESSION})
    other = Signer.generate("example.com/other")
    with LedgerClient(tmp_path / "other.db", signer=other) as another:
        write_run(another, 3)
        foreign = make_extract(another, {"session_id": SESSION})
    read_extract(json.dumps(foreign), other.verifier_key)
    for mixed in (
        foreign,
        {**new, "checkpoint": old["checkpoint"]},
        {**old, "checkpoint": new["checkpoint"]},
        {**new, "records": foreign["records"]},
        {**foreign, "checkpoint": new["checkpoint"], "verifier_key": str(KEY)},
        {**new, "records": new["records"][:-1] + old["records"][-1:]},
    ):
        said = refused(lambda: read_extract(json.dumps(mixed), KEY))  # noqa: B023
        assert re.search(r"\((extract|head|record)-", said)


def test_archived_entries_need_their_segment(tmp_path: Path) -> None:
    database, directory = tmp_path / "l.db", tmp_path / "archive"
    with LedgerClient(database, signer=SIGNER) as client:
        sessions(client, 44, leading=2)
        before = client.count()
        cut_off(client, directory)
    run = {"session_id": "SES-9"}
    with LedgerClient(database, signer=SIGNER) as client:
        with pytest.raises(LedgerError, match="segment that is not attached"):
            make_extract(client, run)
        with pytest.raises(EntryArchivedError):
            make_extract(client, {"first": 0, "end": before})
        client.attach([directory])
        whole = make_extract(client, run)
        found = read_extract(json.dumps(whole), KEY)
        assert len(found.records) > 2
        assert (
            read_extract(json.dumps(make_extract(client, {"first": 0, "end": 99})), KEY).end == 99
        )
        client.detach()
        assert list(check_indexes(client, False)) == []
        client.export(tmp_path / "e.jsonl")
    load_standalone().check_export(str(tmp_path / "e.jsonl"), str(KEY), None)
    with LedgerClient(tmp_path / "i.db") as empty:
        assert empty.import_jsonl(tmp_path / "e.jsonl", key=KEY).entries > before


@pytest.mark.parametrize("event", ["INDEXED", "TOOL_CALL"])
def test_a_damaged_record_does_not_hide_a_lying_index(
    ledger: LedgerClient, tmp_path: Path, event: str
) -> None:
    write_run(ledger, 3)
    write_run(ledger, 4)
    for session in (SESSION, "SES-0004"):
        make_extract(ledger, {"session_id": session})
    whole = read_extract(json.dumps(make_extract(ledger, {"session_id": SESSION})), KEY)
    lie = {"of": {"session_id": SESSION}, "entries": sorted(whole.records)[:-1], "actions": [],
           "part": 1, "parts": 1}  # fmt: skip
    ledger.write(LedgerEntry("INDEXED", SESSION, "INDEXED", "r", metadata=lie))
    place = str(tmp_path / "ledger.db")
    ((damaged,),) = outside(place, f"SELECT max(seq) FROM entries WHERE event_type = '{event}' "
                                   "AND seq < (SELECT max(seq) FROM entries)")  # fmt: skip
    outside(place, f"UPDATE entries SET record = '{{' WHERE seq = {damaged}")
    found = [*check_indexes(ledger, False)]
    said = "malformed" if event == "INDEXED" else "record cannot be read"
    assert any(said in text for _, text in found), found
    assert any("does not name" in text for _, text in found), found


def test_an_altered_row_does_not_get_an_extract(ledger: LedgerClient, tmp_path: Path) -> None:
    write_run(ledger, 3)
    ledger.checkpoint()
    place = str(tmp_path / "ledger.db")
    outside(place, "UPDATE entries SET record = replace(record, '\"r\"', '\"x\"') WHERE seq = 4")
    with pytest.raises(LedgerFormatError, match="cut off or rewritten"):
        make_extract(ledger, {"session_id": SESSION})
