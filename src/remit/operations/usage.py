"""The operation that adds up usage and cost."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.message_text import count, dollars
from remit.operations.operation import Answer, Document, field, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Table

if TYPE_CHECKING:
    from remit.views import UsageRow

_OWNERS = (
    "key", "user", "team", "organisation", "agent", "session", "contract", "provider", "model",
    "certainty",
)  # fmt: skip
_LISTED = 50
_MAX_PAGE = 500
_FIGURES = {
    "attempts": "calls", "in": "input_tokens", "out": "output_tokens", "measured": "measured_usd",
    "estimated": "estimated_usd", "upper bound": "upper_bound_usd", "unpriced": "unpriced_calls",
    "failed": "failed", "fallbacks": "fallbacks",
}  # fmt: skip
_ALWAYS = ("attempts", "in", "out", "measured")


def _only(name: str) -> Any:
    return field(f"Only usage of this {name}.", "", most=512)


@verb(
    "usage", "GET /usage", summary="Add up usage", form="UsageQuery", result="UsagePage",
    tools=("usage",), instead_of_json=("csv", "parquet"), endpoint="usage",
)  # fmt: skip
def show_usage(
    root: RootPort, caller: Caller, *,
    since: str = field(
        "Start of the range: today, yesterday, monday, 24h, 7d, or ISO 8601.", "7d", most=64
    ),
    until: str = field("End of the range, exclusive, in the same forms.", "now", most=64),
    by: str = field(
        "Group by hour, day, week or month; key, user, team, organisation, agent, session, "
        "contract, provider, model, certainty. Empty: only the total.",
        "model", most=256, metavar="A,B",
    ),
    key: str = field(
        "Only usage of this virtual key: its id, or its name in a command.", "", most=512
    ),
    user: str = _only("user"),
    team: str = _only("team"),
    organisation: str = _only("organisation"),
    agent: str = _only("agent"),
    session: str = _only("session"),
    contract: str = _only("contract"),
    provider: str = _only("provider"),
    model: str = _only("model"),
    certainty: str = _only("certainty"),
    time_zone: str = field("Time zone of days, such as Europe/Berlin.", "UTC", most=64),
    why: bool = field(
        "Show the reasons of fallbacks, with example exchanges.", False, door="command"
    ),
    limit: int | None = field(
        "Largest number of rows: in a command, those of the latest periods and highest cost "
        "(default: all); in a page, 1 to 500 (default: 50).", None, least=1,
    ),
    cursor: str | None = field("`next_cursor` of the previous page.", None, door="route"),
    csv: bool = field("Print CSV.", False, door="command"),
    parquet: Path | None = field(
        "Write a Parquet file (extra parquet).", None, door="command", metavar="FILE"
    ),
) -> dict[str, Any] | Document | Answer:  # fmt: skip
    """Show usage and cost of calls by time, owner, model and more.

    Costs are listed by certainty: measured, estimated, or the upper bound for calls with unknown
    usage. Calls without a price are counted but not included in any cost. Only sums that were
    stored with each call are read.

    Returns:
        The sums by group and their total, page by page; the total is None after the first page. For
        a command all groups, or the ``limit`` of the latest periods and highest cost, perhaps as a
        file.

    Raises:
        InvalidInputError: a time, a name or the cursor cannot be used, options exclude each other,
            or a page has over 500 rows.
        NotFoundError: a command names an unknown key.
        RemitError: a Parquet file is wanted, and pyarrow is not installed.
        LedgerError: the ledger cannot be read.
    """
    from remit.views import instant_of, read_fallbacks, read_usage

    if why and (csv or parquet):
        raise InvalidInputError("--why cannot be combined with --csv or --parquet.")
    if csv and parquet:
        raise InvalidInputError("Choose one of --json, --csv and --parquet.")
    given = (key, user, team, organisation, agent, session, contract, provider, model, certainty)
    where = {name: value for name, value in zip(_OWNERS, given, strict=True) if value}
    if caller.is_local and key not in ("", "dev"):  # dev mode's own is no virtual key
        where["key"] = root.keys.find(key).key_id
    names = [name for one in by.split(",") if (name := one.strip())]
    ends = [instant_of(one, time_zone) for one in (since, until)]
    end = None if caller.is_local and until == "now" else ends[1]
    of: dict[str, Any] = {"since": ends[0], "until": end, "where": where}
    if caller.is_local:
        paged: dict[str, Any] = {"limit": limit}
    elif limit is not None and limit > _MAX_PAGE:
        raise InvalidInputError(f"limit is larger than {_MAX_PAGE}.")
    else:
        paged = {"limit": limit or _LISTED, "order": "name", "after": _place(cursor)}
    found = read_usage(root.ledger, by=names, time_zone=time_zone, **paged, **of)
    if csv:
        return Document(_csv(names, found.rows))
    if parquet:
        note = f"{count(len(found.rows), 'row')} written to {parquet}."
        return Document(_parquet(names, found.rows), parquet, note)
    shown = {
        "since": found.since.isoformat(), "until": found.until.isoformat(),
        "time_zone": time_zone, "by": names, "rows": [row.to_dict() for row in found.rows],
        "total": None if cursor else read_usage(root.ledger, **of).rows[0].to_dict(),
    }  # fmt: skip
    if not caller.is_local:
        return {**shown, "next_cursor": found.more and _cursor(found.more)}
    if why:
        reasons = read_fallbacks(root.ledger, by=names, **of)
        rows = [one.to_dict() for one in reasons.reasons]
        shown["fallbacks"] = {"calls": reasons.calls, "read": reasons.read, "reasons": rows}
    last = found.until if end else min(found.until, ends[1])  # not the end of this quarter hour
    return Answer(shown, _lines(root, {**shown, "until": last.isoformat()}, limit or _LISTED))


def _lines(root: RootPort, found: dict[str, Any], most: int) -> Iterator[str | Table]:
    """Yield the range, the table of groups with the total, and the reasons of fallbacks."""
    by = found["by"]
    rows = found["rows"][:most] if by else []
    shown = [*rows, found["total"]]
    columns = [head for head, name in _FIGURES.items()
               if head in _ALWAYS or any(row[name] for row in shown)]  # fmt: skip
    declared = {scope: owner.name for scope, owner in root.directory.declared().items()}
    firsts = [_names_of(by, row, declared) for row in rows]
    firsts.append(["total", *[""] * (len(by) - 1)])
    cells = [[*first, *(_cell(row[_FIGURES[head]]) for head in columns)]
             for first, row in zip(firsts, shown, strict=True)]  # fmt: skip
    since, until = (found[end][:16].replace("T", " ") for end in ("since", "until"))
    yield f"{since} to {until} UTC"
    yield Table([*(by or [""]), *columns], cells)
    if len(found["rows"]) > most:
        yield f"Only the first {most} rows are shown; raise --limit to see more."
    if "fallbacks" in found:
        yield from _why(found["fallbacks"], by)


def _names_of(by: Sequence[str], row: Mapping[str, Any], declared: Mapping[str, str]) -> list[str]:
    found = []
    for column in by:
        value = row[column] or "(none)"
        name = row["key_name"] if column == "key" else declared.get(f"{column}:{value}", "")
        found.append(f"{name} ({value})" if name else value)
    return found


def _cell(value: float) -> str:
    return dollars(value) if isinstance(value, float) else f"{value:,}"


def _why(fallbacks: dict[str, Any], by: Sequence[str]) -> Iterator[str]:
    from remit.views.wording import words_of

    calls, read = fallbacks["calls"], fallbacks["read"]
    yield "" if calls else "No call used a fallback model."
    for one in fallbacks["reasons"]:
        of = " ".join(one[name] or "(none)" for name in by)
        said = f"{one['instead_of']} skipped: {words_of(one['code'])} ({one['code']})"
        examples = ", ".join(one["examples"])
        yield f"{of + ': ' if of else ''}{said}, {count(one['calls'], 'call')}, such as {examples}"
    if read < calls:
        yield (f"Only the latest {read} of {calls} fallbacks are included; choose a shorter range "
               "to see the others.")  # fmt: skip


def _cursor(place: tuple[str, ...]) -> str:
    import orjson

    return base64.urlsafe_b64encode(orjson.dumps(place)).decode()


def _place(cursor: str | None) -> list[str] | None:
    import orjson

    try:
        place = None if cursor is None else orjson.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, binascii.Error):
        place = 0
    if place is None or (isinstance(place, list) and all(isinstance(one, str) for one in place)):
        return place
    raise InvalidInputError("The cursor is unknown.", next_step="Begin again without one.")


def _columns(by: Sequence[str]) -> list[str]:
    from remit.views import UsageRow

    return list(UsageRow(dict.fromkeys(by, "")).to_dict())


def _csv(by: Sequence[str], rows: Sequence[UsageRow]) -> str:
    import csv
    import io

    text = io.StringIO(newline="")
    # With the line end of RFC 4180 the writer quotes a field that holds a bare CR or LF.
    writer = csv.DictWriter(text, _columns(by), lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _inert(value) for name, value in row.to_dict().items()})
    return text.getvalue()


def _inert(value: Any) -> Any:
    """Return a text that a spreadsheet does not run as a formula; other values stay."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


def _parquet(by: Sequence[str], rows: Sequence[UsageRow]) -> Any:
    """Return the function that writes the rows as Parquet, with exact dollars.

    Raises:
        RemitError: pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise RemitError(
            "Writing Parquet requires pyarrow.", next_step="pip install 'remit[parquet]'"
        ) from error
    names, text = _columns(by), {*by, "key_name"}
    kinds = [
        pyarrow.string() if name in text
        else pyarrow.decimal128(38, 9) if name.endswith("_usd")
        else pyarrow.int64()
        for name in names
    ]  # fmt: skip
    records = [row.to_dict() for row in rows]
    for record, row in zip(records, rows, strict=True):
        for name in ("measured", "estimated", "upper_bound"):
            record[f"{name}_usd"] = Decimal(getattr(row, f"{name}_nano")).scaleb(-9)
    schema = pyarrow.schema(list(zip(names, kinds, strict=True)))
    made = pyarrow.Table.from_pylist(records, schema=schema)

    def write(file: IO[bytes]) -> None:
        pyarrow.parquet.write_table(made, file, compression="zstd")

    return write
