"""The auditor's report as a single HTML file.

The file embeds one data set: a signed checkpoint, canonical records, and the tree hashes that lead
from these records to the checkpoint. Its script proves the records first. Then the script builds
the page from them, and from texts of its own, and discards the document that it came with. A reader
whose browser runs no script sees a plain list that says that nothing was verified.
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import orjson

from remit._version import __version__
from remit.ledger import EVENTS, LedgerClient, LedgerEntry, entry_id, is_authentic
from remit.ledger.usage import CERTAINTIES
from remit.views.page import environment, script, style_hash, style_sheet
from remit.views.report import MAX_LINES, TABLES, Table
from remit.views.report_entries import SECTIONS, SHOWN, Section, read_records
from remit.views.report_sums import CALLS
from remit.views.wording import visible_json

FULL_RANGE = 20_000
"""The largest number of entries of a range that a file holds completely.

The script refuses a file of such a range that lacks an entry, unless an ARCHIVED entry accounts for
it. A file of a longer range has the lists of the report only, and says that it is a selection.
"""

_FORMAT = "remit-report/1"
_IN_MARKUP = {ord(char): f"\\u{ord(char):04x}" for char in "<>&'"}
_PARTS = (
    ("ran", "What ran",
     "A call is one round trip to a model: an EXCHANGE, or an EXCHANGE_ORPHANED if the process "
     "died before the answer was recorded. Prompts and answers are not in this file."),
    ("asked", "Who asked",
     "The virtual key of each call, and the user that the call names."),
    ("cost", "What it cost",
     "Costs as recorded with each call: measured by the provider's usage, estimated, an upper "
     "bound, or without a price. No figure is rounded. Charges made outside the gateway are "
     "included."),
    ("refused", "What was refused, and what people decided", ""),
    ("changed", "What changed", ""),
    ("checks", "Gates", ""),
    ("rest", "All other entries", ""),
)  # fmt: skip
_GATES = Section("gates", "Gate checks", "checks", ("GATE_PASSED", "GATE_FAILED"))
_USAGE_COLUMNS = (
    ("calls", "calls"), ("failed", "failed"), ("nano", "cost"), ("unpriced_calls", "unpriced"),
    ("input_tokens", "tokens in"), ("output_tokens", "tokens out"),
)  # fmt: skip
_COLUMNS = {
    "refusals": (("entries", "entries"),),
    "outside": (("entries", "entries"), ("nano", "cost")),
}
_VERIFICATION = frozenset({"verified", "entries", "contents", "erased", "problem_count", "unread"})


def report_parts(ledger: LedgerClient, report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the HTML file in pieces; memory holds a batch of records and the tree hashes.

    A range of at most 20,000 entries is embedded whole, a longer one only with the entries that the
    report lists. The neighbours of the range are embedded too, and with archived entries all
    ``ARCHIVED``. The archived entries themselves are left out.

    Args:
        ledger: the ledger that the report is of.
        report: the result of :func:`remit.views.audit_report`; its entries are read anew.

    Raises:
        LedgerError: the ledger cannot be read; raised by the call, or while the pieces are read.
    """
    first, end = report["range"]["first_seq"], report["range"]["end_seq"]
    size = report["log"]["size"]
    is_whole = end - first <= FULL_RANGE
    seqs = {seq for section in report["sections"] for seq in section["seqs"]}
    seqs |= {seq for seq in (first - 1, end) if 0 <= seq < size}  # the neighbours of the range
    if report["range"]["archived"]:
        rows = ledger.select("SELECT seq FROM entries WHERE event_type = 'ARCHIVED'")
        seqs |= {seq for (seq,) in rows if seq < size}
    if is_whole:
        rows = ledger.select("SELECT seq FROM entries WHERE seq >= ? AND seq < ?", (first, end))
        seqs |= {seq for (seq,) in rows}
    listed = sorted(seqs)
    style, scripts = style_sheet("page.css", "report.css"), _report_script()
    return (
        environment()
        .get_template("report.html.j2")
        .generate(
            report=report,
            log=report["log"],
            style=style,
            style_hash=style_hash(style),
            script=scripts,
            script_hash=style_hash(scripts),
            by_hand=_by_hand(),
            entries=(_line(*one) for one in read_records(ledger, listed)),
            data=_data(ledger, report, listed, is_whole=is_whole),
        )
    )


def _line(seq: int, record: str) -> dict[str, Any]:
    """Return an entry for readers without scripts."""
    try:
        found = json.loads(record)
        return {name: found[name] for name in ("id", "timestamp", "event_type", "decision")}
    except (ValueError, KeyError, TypeError):
        return {"id": entry_id(seq), "event_type": "unreadable record"}


def report_script_hash() -> str:
    """Return SHA-256 in base64 of the script, which is the same in all reports of this version."""
    return style_hash(_report_script())


@functools.cache
def _report_script() -> str:
    """Return the script of all reports of this version, including the texts of the page."""
    prose = environment().get_template("report_prose.html.j2").render()
    texts = {
        "format": _FORMAT,
        "version": __version__,
        "style": style_sheet("page.css", "report.css"),
        "prose": prose,
        "byHand": _by_hand(),
        "parts": [dict(zip(("name", "title", "about"), part, strict=True)) for part in _PARTS],
        "sections": [asdict(one) for one in (*SECTIONS, _GATES)],
        "tables": [
            {**asdict(one), "isUsage": one.is_usage, "columns": _columns(one)} for one in TABLES
        ],
        "mostLines": MAX_LINES,
        "wholeRange": FULL_RANGE,
        "shown": SHOWN,
        "calls": CALLS,
        "certainties": CERTAINTIES,
        "authentic": _authentic(),
    }
    return "\n".join(
        (
            script("verify.js"),
            f"const REPORT = {_in_markup(json.dumps(texts))};",
            script("report.js"),
        )
    )


def embedded(value: Any) -> str:
    """Return JSON for a ``<script>`` element, with ``<``, ``>``, ``&`` and ``'`` as JSON escapes.

    Control characters, marks of text direction, U+2028, U+2029, U+FEFF, U+FFFE and U+FFFF are
    escaped too. Zero-width spaces, soft hyphens and tag characters stay. The value of the JSON is
    unchanged.

    Args:
        value: a JSON value; another raises TypeError.
    """
    return _in_markup(orjson.dumps(value).decode())


def _in_markup(text: str) -> str:
    return visible_json(text).translate(_IN_MARKUP)


@functools.cache
def _by_hand() -> str:
    return environment().get_template("report_by_hand.html.j2").render()


def _columns(table: Table) -> tuple[tuple[str, str], ...]:
    return _COLUMNS.get(table.name, _USAGE_COLUMNS)


def _authentic() -> dict[str, list[str]]:
    """Return who may write entries of each event type, as ``tier`` or ``tier operator``.

    The tier is ``other`` if an entry names one that does not exist.
    """
    found: dict[str, list[str]] = {event: [] for event in EVENTS}
    classes = {"": "", " operator": "OPERATOR"}
    for event, tier, (mark, name) in itertools.product(
        EVENTS, ("hot", "ho2", "ho1", "other"), classes.items()
    ):
        metadata = {"tier": tier, "provenance": {"agent_class": name}}
        if is_authentic(LedgerEntry(event, "", "", "", metadata=metadata)):
            found[event].append(f"{tier}{mark}")
    return found


def _data(
    ledger: LedgerClient, report: Mapping[str, Any], seqs: list[int], *, is_whole: bool
) -> Iterator[str]:
    """Yield the data set of the file, as JSON."""
    log, extent = report["log"], report["range"]
    head = {
        "format": _FORMAT,
        "checkpoint": log["checkpoint"],
        "verifier_key": log["verifier_key"],
        "since": report["since"],
        "until": report["until"],
        "first": extent["first_seq"],
        "end": extent["end_seq"],
        "stated": _stated(report, is_whole=is_whole),
    }
    yield f'{embedded(head)[:-1]},"records":['
    found: list[int] = []
    for seq, record in read_records(ledger, seqs):
        yield f"{',' if found else ''}{embedded(record)}"
        found.append(seq)
    hashes = ledger.checkpoints.multiproof(found, log["size"])
    yield f'],"hashes":{embedded([base64.b64encode(one).decode() for one in hashes])}}}'


def _stated(report: Mapping[str, Any], *, is_whole: bool) -> dict[str, Any]:
    """Return the statements that no proof covers, as numbers and times without words."""
    found, gates = report["verification"], report["gates"]
    total = next(one for one in report["tables"] if one["name"] == "total")["rows"][0]
    return {
        "made_at": report["made_at"],
        "verification": found and {name: found[name] for name in sorted(_VERIFICATION)},
        "gates": gates
        and {
            "checked": len(gates["gates"]),
            "passed": sum(bool(gate["passed"]) for gate in gates["gates"]),
        },
        "total": None
        if is_whole and not report["range"]["archived"]
        else {
            "entries": report["range"]["entries"],
            **{name: total[name] for name, _ in _USAGE_COLUMNS},
        },
    }
