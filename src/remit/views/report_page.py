"""The auditor's report as one HTML file that checks itself in the reader's browser."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from remit.views.page import environment, script, style_hash, style_sheet
from remit.views.wording import nano_dollars, number, visible_json

__all__ = ["report_parts", "report_script_hash"]

_SCRIPTS = ("verify.js", "report.js")
_IN_MARKUP = {ord(char): f"\\u{ord(char):04x}" for char in "<>&'"}
_PARTS = (
    ("ran", "What ran"),
    ("asked", "Who asked"),
    ("cost", "What it cost"),
    ("refused", "What was refused, and what people decided"),
    ("changed", "What changed"),
    ("checks", "Gates and verification"),
)
_COLUMNS = (
    ("calls", "calls"), ("failed", "failed"), ("nano", "cost"),
    ("unpriced_calls", "of unknown price"), ("input_tokens", "tokens in"),
    ("output_tokens", "tokens out"),
)  # fmt: skip


def report_parts(report: Mapping[str, Any]) -> Iterator[str]:
    """The file piece by piece: of its entries memory holds one, and the hashes of all proofs.

    Args:
        report: of :func:`remit.views.audit_report`; its lists of entries are gone through.
    """
    style, scripts = style_sheet("page.css", "report.css"), script(*_SCRIPTS)
    nodes = _Nodes()
    head = {name: report[name] for name in ("since", "until")}
    head |= {name: report["log"][name] for name in ("checkpoint", "verifier_key")}
    return (
        environment()
        .get_template("report.html.j2")
        .generate(
            report=report,
            log=report["log"],
            parts=_PARTS,
            tables=report["tables"],
            total=next(one for one in report["tables"] if one["name"] == "total"),
            figure=_figure,
            columns=_columns,
            head=embedded(head),
            data=functools.partial(_data, nodes),
            nodes=nodes.table,
            embedded=embedded,
            label=lambda pointer: pointer.rpartition("/")[2].replace("_", " "),
            groups=lambda text: [text[i : i + 4] for i in range(0, len(text), 4)],
            listed=sum(one["listed"] for one in report["sections"] if one["is_of_range"]),
            number=number,
            style=style,
            style_hash=style_hash(style),
            script=scripts,
            script_hash=style_hash(scripts),
        )
    )


def report_script_hash() -> str:
    """SHA-256 in base64 of the script in each report of this version: what checks the rest."""
    return style_hash(script(*_SCRIPTS))


def embedded(value: Any) -> str:
    """JSON for a ``<script>`` or an attribute: nothing in it ends either, or is invisible."""
    text = orjson.dumps(value).decode()
    return visible_json(text).translate(_IN_MARKUP)


class _Nodes:
    """The hashes of all proofs, each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, node: str) -> int:
        return self._places.setdefault(node, len(self._places))

    def table(self) -> str:
        return embedded(list(self._places))


def _data(nodes: _Nodes, row: Mapping[str, Any]) -> str:
    """What the script checks of a row."""
    path = [nodes.place(node) for node in row["proof"]]
    kept = {name: row[name] for name in ("seq", "entry_hash", "record")}
    return embedded({**kept, "path": path})


def _columns(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    match table["name"]:
        case "refusals":
            return [("entries", "entries")]
        case "outside":
            return [("entries", "entries"), ("nano", "cost")]
    return list(_COLUMNS)


def _figure(name: str, value: int) -> str:
    return nano_dollars(value) if name == "nano" else number(value)
