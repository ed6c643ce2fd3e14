"""Labelled sets: what every model's answer to every prompt was worth, and what it cost."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import orjson

from tools.route_evaluation.errors import EvaluationError

__all__ = ["FORMATS", "ModelResult", "Row", "open_set", "read_routerbench_csv", "read_rows"]

MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line of a set is an error."""

_COST = "|total_cost"
_WORDS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What one model's answer was worth, from 0 to 1, and what it cost in US dollars."""

    quality: float
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt.

    Attributes:
        id: its name in the set.
        prompt: its text.
        results: by model.
        task: empty where the set does not say.
        place: where it stands, for messages.
        paraphrases: the same question in other words.
    """

    id: str
    prompt: str
    results: Mapping[str, ModelResult]
    task: str = ""
    place: str = ""
    paraphrases: tuple[str, ...] = ()


def read_rows(stream: IO[bytes], *, name: str = "the set") -> Iterator[Row]:
    """Rows of a set in JSON lines (docs/evaluation.md describes the form), one at a time.

    Of the rows that went by, an 8-byte digest of each id is kept, to find one that comes again.

    Args:
        stream: UTF-8 JSON lines; empty lines are passed over.
        name: how errors call it.

    Raises:
        EvaluationError: a line is no row; its number is named.
    """
    return _once(_json_rows(stream, name))


def read_routerbench_csv(stream: IO[bytes], *, name: str = "the table") -> Iterator[Row]:
    """Rows of RouterBench's wide table, as CSV.

    Columns: ``sample_id``, ``prompt``, ``eval_name`` (the task; may be missing), and for each
    model its quality under its own name and its cost in US dollars under ``NAME|total_cost``.
    Others are passed over.

    Raises:
        EvaluationError: it is no such table; the line is named.
    """
    return _once(_csv_rows(stream, name))


Reader = Callable[..., Iterator[Row]]
FORMATS: Mapping[str, Reader] = {"jsonl": read_rows, "routerbench-csv": read_routerbench_csv}
"""Readers by the name of what they read."""


def open_set(stream: IO[bytes], form: str, *, name: str, task: str = "") -> Iterator[Row]:
    """Rows of a set in one of :data:`FORMATS`, of one task where it is given.

    Raises:
        EvaluationError: the form is unknown, or as its reader says.
    """
    reader = FORMATS.get(form)
    if reader is None:
        raise EvaluationError(f"There is no format {form!r}.",
                              next_step=f"Known are {', '.join(FORMATS)}.")  # fmt: skip
    rows = reader(stream, name=name)
    return (row for row in rows if row.task == task) if task else rows


def _once(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, each id once."""
    seen: set[bytes] = set()
    for row in rows:
        digest = hashlib.blake2b(row.id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        if digest in seen:
            raise EvaluationError(f"{row.place}: the id {row.id!r} stands twice.",
                                  next_step="Give every prompt an id of its own.")  # fmt: skip
        seen.add(digest)
        yield row


def _json_rows(stream: IO[bytes], name: str) -> Iterator[Row]:
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        place = f"{name}, line {number}"
        if len(line) > MAX_LINE_BYTES:
            raise EvaluationError(f"{place}: it has more than {MAX_LINE_BYTES:,} bytes.")
        if not line.strip():
            continue
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise EvaluationError(
                f"{place}: it is not JSON ({error}).",
                next_step="NaN and Infinity are no JSON: leave out rows without a grade.",
            ) from error
        yield _row(document, place)


def _row(document: Any, place: str) -> Row:
    if not isinstance(document, dict):
        raise EvaluationError(f"{place}: it is no object.")
    results = document.get("results")
    if not isinstance(results, dict) or not results:
        raise EvaluationError(
            f"{place}: results is missing or empty.",
            next_step='It takes {"MODEL": {"quality": 0..1, "cost_usd": dollars}}.',
        )
    found = {}
    for model, result in results.items():
        if not model or not isinstance(result, dict):
            raise EvaluationError(f"{place}: results.{model} is no object.")
        found[model] = _result(result.get("quality"), result.get("cost_usd"), model, place)
    return Row(
        id=_text(document, "id", place),
        prompt=_text(document, "prompt", place),
        results=found,
        task=_text(document, "task", place) if "task" in document else "",
        place=place,
        paraphrases=_paraphrases(document.get("paraphrases", []), place),
    )


def _paraphrases(value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise EvaluationError(f"{place}: paraphrases is no list of texts.",
                              next_step='It takes ["the prompt in other words", ...].')  # fmt: skip
    return tuple(value)


def _text(document: Mapping[str, Any], key: str, place: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise EvaluationError(f"{place}: {key} is missing or no text.")
    return value


def _result(quality: Any, cost: Any, model: str, place: str) -> ModelResult:
    for key, value in (("quality", quality), ("cost_usd", cost)):
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise EvaluationError(f"{place}: {key} of {model} is {value!r}, no finite number.")
    if not 0 <= quality <= 1:
        raise EvaluationError(f"{place}: quality of {model} is {quality!r}.",
                              next_step="It takes 0 to 1: bring other scales to that.")  # fmt: skip
    if isinstance(cost, bool) or cost < 0:
        raise EvaluationError(f"{place}: cost_usd of {model} is {cost!r}.",
                              next_step="It takes US dollars from 0 on.")  # fmt: skip
    return ModelResult(float(quality), float(cost))


def _csv_rows(stream: IO[bytes], name: str) -> Iterator[Row]:
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    reader = csv.DictReader(text, strict=True)
    last = 0
    try:
        columns = list(reader.fieldnames or ())
        models = [one.removesuffix(_COST) for one in columns if one.endswith(_COST)]
        for needed in ("sample_id", "prompt", *models):
            if needed not in columns:
                raise EvaluationError(f"{name}: there is no column {needed!r}.")
        if not models:
            raise EvaluationError(f"{name}: there is no column that ends in {_COST!r}.")
        for cells in reader:
            # A cell can hold line breaks: the row is named by the line it ends on.
            last = reader.line_num
            place = f"{name}, line {last}"
            yield Row(
                id=_text(cells, "sample_id", place),
                prompt=_text(cells, "prompt", place),
                results={
                    model: _result(
                        _number(cells[model]), _number(cells[model + _COST]), model, place
                    )
                    for model in models
                },
                task=cells.get("eval_name") or "",
                place=place,
            )
    except (csv.Error, UnicodeDecodeError) as error:
        raise EvaluationError(f"{name}, after line {last}: it is no CSV in UTF-8 ({error}).",
                              next_step="See docs/evaluation.md.") from error  # fmt: skip
    finally:
        text.detach()  # the stream is its owner's to close


def _number(cell: str | None) -> float | str | None:
    """A cell's number; what is none stays as it is, and is refused with its place."""
    if cell is None:
        return None
    word = cell.strip()
    try:
        return _WORDS[word.casefold()] if word.casefold() in _WORDS else float(word)
    except ValueError:
        return cell
