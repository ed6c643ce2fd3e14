"""``remit usage``: shows usage and cost of calls, grouped by time, owner, model and more."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import FILE, emit, note, open_ledger, reads, say_text, table, write_file

if TYPE_CHECKING:
    from remit.views import Fallbacks, Usage, UsageRow

_OWNERS = ("key", "user", "team", "organisation", "agent", "session", "contract", "model")
_LISTED = 50


def _split(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(name for one in value.split(",") if (name := one.strip()))


def _filtered(function: Any) -> Any:
    """Add a filter option for each kind of owner."""
    for name in reversed(_OWNERS):
        what = f"Only usage of this {'virtual key (name or id)' if name == 'key' else name}"
        function = click.option(f"--{name}", help=f"{what}.")(function)
    return function


@click.command()
@click.option("--since", default="7d", show_default=True,
              help="Entries at or after this time: today, yesterday, monday, 24h, 7d, or ISO "
                   "8601.")  # fmt: skip
@click.option(
    "--until", default="now", show_default=True, help="Entries before this time, in the same form."
)
@click.option("--by", default="model", show_default=True, callback=_split, metavar="A,B",
              help="Group by hour, day, week or month; key, user, team, organisation, agent, "
                   "session, "
              "contract, provider, model, certainty. Empty: show only the total.")  # fmt: skip
@_filtered
@click.option("--time-zone", default="UTC", show_default=True,
              help="Time zone of days, such as Europe/Berlin.")  # fmt: skip
@click.option("--why", is_flag=True, help="Show the reasons of fallbacks, with example exchanges.")
@click.option(
    "--limit", type=click.IntRange(min=1), help="Largest number of rows, highest cost first."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--parquet", type=FILE, help="Write a Parquet file (extra parquet).")
@reads
def usage(
    root: Path | None,
    as_json: bool,
    since: str,
    until: str,
    by: tuple[str, ...],
    time_zone: str,
    why: bool,
    limit: int | None,
    as_csv: bool,
    parquet: Path | None,
    **only: str | None,
) -> None:
    """Show usage and cost of calls, grouped by time, owner, model and more.

    Costs are listed by certainty: measured, estimated, or the upper bound for calls with unknown
    usage. Calls without a price are counted but not included in any cost.
    """
    from remit.gateway.auth import Directory, KeyStore
    from remit.views import instant_of, read_fallbacks, read_usage

    if as_json + as_csv + (parquet is not None) > 1:
        raise click.UsageError("Choose one of --json, --csv and --parquet.")
    if why and (as_csv or parquet):
        raise click.UsageError("--why cannot be combined with --csv or --parquet.")
    span: dict[str, Any] = {
        "since": instant_of(since, time_zone),
        "until": None if until == "now" else instant_of(until, time_zone),
    }
    with open_ledger(root) as client:
        where = {name: value for name, value in only.items() if value}
        if "key" in where and where["key"] != "dev":  # dev mode's own is no virtual key
            with KeyStore(client) as keys:
                where["key"] = keys.find(where["key"]).key_id
        of: dict[str, Any] = {**span, "where": where}
        found = read_usage(client, by=by, time_zone=time_zone, limit=limit, **of)
        [total] = read_usage(client, **of).rows
        reasons = read_fallbacks(client, by=by, **of) if why else None
        names = {scope: owner.name for scope, owner in Directory(client).declared().items()}
    if as_csv:
        say_text(_csv(by, found.rows), nl=False)
    elif parquet is not None:
        _write_parquet(parquet, by, found.rows)
        note(f"{len(found.rows)} rows written to {parquet}.")
    else:
        emit(
            as_json,
            _to_dict(found, by, time_zone, total, reasons),
            [] if as_json else _lines(found, by, total, reasons, limit, names),
        )


def _to_dict(
    found: Usage, by: Sequence[str], time_zone: str, total: UsageRow, reasons: Fallbacks | None
) -> dict[str, Any]:
    shown = {
        "since": found.since.isoformat(),
        "until": found.until.isoformat(),
        "time_zone": time_zone,
        "by": list(by),
        "rows": [row.to_dict() for row in found.rows],
        "total": total.to_dict(),
    }
    if reasons is not None:
        shown["fallbacks"] = {
            "calls": reasons.calls,
            "read": reasons.read,
            "reasons": [one.to_dict() for one in reasons.reasons],
        }
    return shown


def _lines(
    found: Usage, by: Sequence[str], total: UsageRow, reasons: Fallbacks | None, limit: int | None,
    names: Mapping[str, str],
) -> Iterator[str]:  # fmt: skip
    most = limit or _LISTED
    rows = found.rows[:most] if by else []
    shown = [*rows, total]
    columns = [name for name in _FIGURES if name in _ALWAYS or any(
        _FIGURES[name](row) for row in shown
    )]  # fmt: skip
    cells = [
        [*_named(by, row, names), *(_cell(name, _FIGURES[name](row)) for name in columns)]
        for row in rows
    ]
    last = ["total", *[""] * (len(by) - 1)] if by else ["total"]
    cells.append([*last, *(_cell(name, _FIGURES[name](total)) for name in columns)])
    yield f"{found.since:%Y-%m-%d %H:%M} to {found.until:%Y-%m-%d %H:%M} UTC"
    yield from table([*(by or [""]), *columns], cells)
    if len(found.rows) > most:
        yield f"Only the first {most} rows are shown; raise --limit to see more."
    if reasons is not None:
        yield from _why(reasons)


def _why(reasons: Fallbacks) -> Iterator[str]:
    from remit.views.wording import count, words_of

    if not reasons.calls:
        yield "No call used a fallback model."
        return
    yield ""
    for one in reasons.reasons:
        of = " ".join(value or "(not recorded)" for value in one.names.values())
        said = f"{one.instead_of} skipped: {words_of(one.code)} ({one.code})"
        examples = ", ".join(one.examples)
        yield f"{of + ': ' if of else ''}{said}, {count(one.calls, 'call')}, such as {examples}"
    if reasons.read < reasons.calls:
        latest = f"the latest {reasons.read} of {reasons.calls} fallbacks"
        yield f"Only {latest} are included; choose a shorter range to see the others."


def _named(by: Sequence[str], row: UsageRow, names: Mapping[str, str]) -> Iterator[str]:
    for column in by:
        value = row.names[column] or "(not recorded)"
        name = row.key_name if column == "key" else names.get(f"{column}:{value}", "")
        yield f"{name} ({value})" if name else value


_FIGURES: dict[str, Any] = {
    "calls": lambda row: row.calls,
    "failed": lambda row: row.failed,
    "fallbacks": lambda row: row.fallbacks,
    "in": lambda row: row.input_tokens,
    "out": lambda row: row.output_tokens,
    "USD measured": lambda row: row.measured_nano,
    "USD estimated": lambda row: row.estimated_nano,
    "USD upper bound": lambda row: row.upper_bound_nano,
    "unpriced": lambda row: row.unpriced_calls,
}
_ALWAYS = ("calls", "in", "out", "USD measured")


def _cell(name: str, value: int) -> str:
    return f"{value / 1e9:.6f}" if name.startswith("USD") else f"{value:,}"


def _records(by: Sequence[str], rows: Sequence[UsageRow]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the names of the columns, and each row as a mapping of the columns."""
    from remit.views import UsageRow

    blank = UsageRow(dict.fromkeys(by, ""))
    return list(blank.to_dict()), [row.to_dict() for row in rows]


def _csv(by: Sequence[str], rows: Sequence[UsageRow]) -> str:
    names, records = _records(by, rows)
    text = io.StringIO(newline="")
    # With the line end of RFC 4180 the writer quotes a field that holds a bare CR or LF.
    writer = csv.DictWriter(text, names, lineterminator="\r\n")
    writer.writeheader()
    for record in records:
        writer.writerow({name: _inert(value) for name, value in record.items()})
    return text.getvalue()


def _inert(value: Any) -> Any:
    """Return a text that a spreadsheet does not run as a formula; other values stay."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


def _write_parquet(path: Path, by: Sequence[str], rows: Sequence[UsageRow]) -> None:
    from remit.kernel.errors import RemitError

    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise RemitError(
            "Writing Parquet requires pyarrow.", next_step="pip install 'remit[parquet]'"
        ) from error
    names, records = _records(by, rows)
    text = {*by, "key_name"}
    kinds = [
        pyarrow.string() if name in text
        else pyarrow.decimal128(38, 9) if name.endswith("_usd")
        else pyarrow.int64()
        for name in names
    ]  # fmt: skip
    nano = ("measured_usd", "estimated_usd", "upper_bound_usd")
    for record, row in zip(records, rows, strict=True):
        for name in nano:
            record[name] = _exact(getattr(row, name.replace("_usd", "_nano")))
    made = pyarrow.Table.from_pylist(
        records, schema=pyarrow.schema(list(zip(names, kinds, strict=True)))
    )
    with write_file(path) as file:
        pyarrow.parquet.write_table(made, file, compression="zstd")


def _exact(nano: int) -> Any:
    """Return nano-dollars as exact dollars."""
    from decimal import Decimal

    return Decimal(nano).scaleb(-9)
