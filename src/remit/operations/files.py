"""Input files and folders of operations; files are read in bounded memory and checked first."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.json_text import load_unique
from remit.kernel.message_text import cut
from remit.kernel.toml_text import load_toml
from remit.operations.operation import field
from remit.operations.ports import RootPort

if TYPE_CHECKING:
    from remit.kernel.settings import Settings
    from remit.ledger import LedgerReader

_MAX_BYTES = 16 * 1024 * 1024
_NAMED = 3


@contextmanager
def io_errors(
    named: object, done: str = "read", kind: Callable[[str], RemitError] = RemitError
) -> Iterator[None]:
    """Raise an error that names a file if the block raises OSError.

    Args:
        named: the file, as the message names it.
        done: the attempted action, as a participle.
        kind: makes the error from the message.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"{named} cannot be {done}: {error.strerror or error}.") from error


def settings_at(path: Path | None) -> Settings:
    """Return the settings of the meant root, or the shipped settings if no root exists.

    Args:
        path: the directory that a command names; None for the default root.

    Raises:
        RemitError: the settings are invalid.
    """
    from remit.kernel.root import find_root
    from remit.kernel.settings import load_settings

    return load_settings(find_root(path).config).settings


def archives() -> Any:
    """Declare the option that names directories of segments, whose entries are read too."""
    return field("Directory of segments. Repeat for several directories.", [], door="command",
                 flag="--archive", metavar="DIR", place="input folder")  # fmt: skip


def read_table(file: Path | str) -> dict[str, Any]:
    """Return the object in a file of at most 16 MiB; TOML if the name ends so, else JSON.

    Raises:
        InvalidInputError: the file cannot be read or is too long, is not JSON or TOML, contains no
            object, or repeats a key.
    """
    data = _read(file)
    try:
        text = data.decode()
        value = load_toml(text) if str(file).endswith(".toml") else load_unique(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{file} cannot be read: {cut(str(error).rstrip('.'), 200)}."
        ) from error
    if not isinstance(value, dict):
        raise InvalidInputError(f"{file} does not contain an object.")
    return value


def read_references(file: Path | str) -> dict[str, str]:
    """Return the correct answers of a JSON or TOML file, keyed by exchange id.

    A number becomes a text. Whether the exchanges exist is not checked.

    Raises:
        InvalidInputError: as for :func:`read_table`, or the file has no answer, or an answer is
            blank, or neither text nor a number.
    """
    found = {}
    for exchange_id, answer in read_table(file).items():
        if isinstance(answer, int | float) and not isinstance(answer, bool):
            answer = str(answer)
        if not _is_answer(answer):
            raise InvalidInputError(
                f"The reference answer to {exchange_id[:40]!r} in {file} is neither text nor a "
                "number.",
                next_step='Write {"LED-0000002a": "42 euros", …}.',
            )
        found[exchange_id] = answer
    if not found:
        raise InvalidInputError(f"{file} contains no reference answers.")
    return found


def read_lines(file: Path | str) -> dict[str, str]:
    """Return the correct answers of a JSON Lines file, keyed by exchange id.

    A line has ``exchange_id`` and ``reference``, both texts. Whether the exchanges exist is not
    checked. An empty file gives an empty dict.

    Raises:
        InvalidInputError: the file cannot be read or exceeds 16 MiB, a line (an empty one too) is
            no reference answer, an answer is blank, or two lines give different answers for one
            exchange.
    """
    found: dict[str, str] = {}
    for number, value in _objects(file):
        exchange_id, reference = value.get("exchange_id"), value.get("reference")
        if not (isinstance(exchange_id, str) and _is_answer(reference)):
            raise InvalidInputError(
                f"Line {number} of {file} is not a reference answer.",
                next_step='Write {"exchange_id": "LED-…", "reference": "42"} on each line.',
            )
        if found.setdefault(exchange_id, str(reference)) != reference:
            raise InvalidInputError(
                f"Line {number} of {file} contradicts an earlier line about {exchange_id[:40]}."
            )
    return found


def read_prompts(file: Path | str) -> list[tuple[Any, str]]:
    """Return the prompts of a JSON Lines file, each with its right answer, empty if unknown.

    A prompt is a text, or a list of messages that is not checked. An empty file gives no prompts.

    Raises:
        InvalidInputError: the file cannot be read or exceeds 16 MiB, or a line (an empty one too)
            has no prompt, or has a reference that is no text.
    """
    found: list[tuple[Any, str]] = []
    for number, value in _objects(file):
        prompt, reference = value.get("prompt"), value.get("reference", "")
        is_prompt = _is_answer(prompt) or (isinstance(prompt, list) and prompt)
        if not is_prompt or not (reference == "" or _is_answer(reference)):
            raise InvalidInputError(
                f"Line {number} of {file} is not a prompt.",
                next_step='Write {"prompt": "6 times 7?", "reference": "42"} on each line.',
            )
        found.append((prompt, reference))
    return found


def _objects(file: Path | str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and object of each line of JSON Lines; an empty object for any other line."""
    for number, line in enumerate(_read(file).splitlines(), 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        yield number, value if isinstance(value, dict) else {}


def require_exchanges(ledger: LedgerReader, references: Collection[str]) -> None:
    """Raise InvalidInputError if the ledger lacks an exchange with one of the ids.

    Raises:
        InvalidInputError: the ledger has no exchange for some ids; the message names the first
            three.
        LedgerError: the ledger cannot be read.
    """
    known = {entry.id for entry in ledger.read_many(references) if entry.event_type == "EXCHANGE"}
    unknown = [repr(one[:40]) for one in references if one not in known]
    if unknown:
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        raise InvalidInputError(
            f"The ledger has no exchange with the id {', '.join(unknown[:_NAMED])}{more}.",
            next_step="`remit ledger query --event-type EXCHANGE` lists the exchanges of this "
            "root.",
        )


def note_unused(root: RootPort, references: Mapping[str, str], used: Collection[str]) -> int:
    """Return the number of references that are not used; show a note with it, unless it is 0.

    Args:
        root: the open root, which shows the note.
        references: right answers, keyed by exchange id.
        used: ids of the exchanges that are used.
    """
    unused = len(references.keys() - set(used))
    if unused:
        root.note(
            f"{unused} of {len(references)} reference answers were not used. Their exchanges "
            "belong to another contract or version, have no answer, are erased, or were made by "
            "learning itself."
        )
    return unused


def _read(file: Path | str) -> bytes:
    with io_errors(file, kind=InvalidInputError), Path(file).open("rb") as stream:
        data = stream.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InvalidInputError(
            f"{file} is longer than {_MAX_BYTES // 1024**2} MiB.",
            next_step="Give a shorter file.",
        )
    return data


def _is_answer(value: object) -> bool:
    from remit.ledger import is_plain_text

    return is_plain_text(value) and bool(str(value).strip(". \t\r\n"))
