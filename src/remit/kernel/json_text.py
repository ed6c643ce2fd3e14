"""JSON text that clients, providers, tools and models wrote: reading and writing values.

Integers of any size and lone surrogates, which strict readers refuse, are read and written.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson

from remit.kernel.errors import InvalidInputError, excerpt

# Possessive, as backtracking would take a hundred bytes for each escape.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_MARKS = re.compile(_STRING.pattern + rb"|[,\[{]", re.DOTALL)
_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(0x100))
_WIDE_NUMBER = b"0" * 19  # In a text whose digits are zeros: orjson rounds integers above 64 bits.
_CONSTANTS = re.compile(_STRING.pattern + rb"|-?Infinity|NaN", re.DOTALL)

_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL | re.IGNORECASE)


class JsonTextError(InvalidInputError):
    """The text is not JSON that every reader understands alike."""


def load(text: bytes) -> Any:
    """Return the value of a JSON text; integers that fit 64 bits are exact, greater ones become
    floats.

    Unlike strict readers, this one accepts escaped lone surrogates, and fractions beyond a double,
    which become infinite. In a text with either of them, or with an integer beyond a double, all
    integers are exact. Of a name that an object has twice, the last member counts.

    Args:
        text: JSON in UTF-8.

    Raises:
        JsonTextError: the text is not JSON in UTF-8, is nested too deep, or has an integer of more
            digits than Python reads (4,300).
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as refused:
        try:
            return json.loads(text.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise JsonTextError(f"The text is not JSON: {refused}.") from None


def has_more_values(text: bytes, most: int) -> bool:
    """Return True if a text contains more than ``most`` values, without parsing the text.

    Each comma and opening bracket outside of strings counts as a value: ``[1]`` has 1, ``[1,2]`` 2,
    a scalar 0. More than two strings for each of ``most`` values give True too, but only if the
    text, strings included, has more than ``most`` commas and brackets. The text need not be JSON.

    Args:
        text: any bytes.
        most: the limit.
    """
    if sum(map(text.count, (b",", b"[", b"{"))) <= most:
        return False  # The count includes characters in strings.
    values = strings = 0
    for found in _MARKS.finditer(text):
        if text[found.start()] == 0x22:  # "
            strings += 1
        else:
            values += 1
        if values > most or strings > 2 * most:  # a name and a text for each
            return True
    return False


def has_wide_number(text: bytes) -> bool:
    """Return True if a text may hold an integer that :func:`load` rounds, of 19 digits or more."""
    return _WIDE_NUMBER in text.translate(_DIGITS)


def load_exact(text: bytes) -> Any:
    """Return the value of a JSON text with integers of any size exact, for reading records.

    An integer with more digits than Python reads (4,300), and a fraction beyond a double, become
    infinite. Lone surrogates are accepted. A repeated name gives its last value.

    Args:
        text: JSON in UTF-8.

    Raises:
        JsonTextError: the text is not JSON, or is nested too deep.
    """
    if not has_wide_number(text):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
    try:
        return json.loads(text.decode(), parse_int=_integer, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise JsonTextError(f"The text is not JSON: {error}.") from error


def is_finite(value: Any) -> bool:
    """Return True if no number in a JSON value is infinite or NaN, which JSON cannot express."""
    left = [value]
    while left:
        one = left.pop()
        kind = type(one)
        if kind is dict:
            left += one.values()
        elif kind is list:
            left += one
        elif kind is float and not math.isfinite(one):
            return False
    return True


def load_answer(text: str) -> Any:
    """Return the value of a model's answer that is JSON, with or without a code fence around it.

    A byte order mark, or thoughts in ``<think>``, may come first. The closing fence may be missing.
    Halves of surrogate pairs become U+FFFD.

    Args:
        text: the answer.

    Raises:
        RepeatedNameError: an object in the text has a name twice.
        JsonTextError: the text is not JSON, or holds a number that cannot be kept.
    """
    text = _THOUGHTS.sub("", text.removeprefix("\ufeff"), count=1).strip()
    head, _, rest = text.partition("\n")
    if head.rstrip().lower() in ("```", "```json"):
        text = rest.removesuffix("```")
    return load_unique(text, repair=True)


def load_unique(text: bytes | str, *, repair: bool = False, keep_halves: bool = False) -> Any:
    """Return the value of a JSON text that every reader understands alike. Integers are exact.

    Args:
        text: the text; bytes are UTF-8 without a byte order mark.
        repair: True to replace halves of surrogate pairs by U+FFFD (:func:`sound_text`), for texts
            of models, tools and clients. They are refused otherwise.
        keep_halves: True to keep escaped halves unchanged, for texts that :func:`dump` wrote.

    Raises:
        RepeatedNameError: an object in the text has a name twice.
        JsonTextError: the text is not JSON or not UTF-8, is nested too deep, has half of a
            surrogate pair that is neither repaired nor kept, or holds a number that cannot be kept:
            a fraction beyond a double, or an integer with more digits than Python reads (4,300,
            unless the program changed it).
    """
    try:
        if isinstance(text, bytes):
            with contextlib.suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
                value = orjson.loads(text)
                if orjson.dumps(value) == text:  # the encoder writes each name once
                    return value
            text = text.decode()
        value = json.loads(
            sound_text(text), object_pairs_hook=_unique, parse_constant=_no_constant,
            parse_float=_finite, parse_int=read_integer,
        )  # fmt: skip
        if keep_halves or (text.isascii() and "\\u" not in text):
            return value
        repaired = _sound(value)
        if not repair and (repaired != value or sound_text(text) is not text):
            raise ValueError("half of a surrogate pair stands alone")
        return repaired
    except JsonTextError:
        raise
    except UnicodeDecodeError as error:
        raise JsonTextError(f"The text is not UTF-8 at byte {error.start}.") from error
    except RecursionError:
        raise JsonTextError("The text is not JSON: it is nested too deeply.") from None
    except ValueError as error:
        raise JsonTextError(f"The text is not JSON: {error}.") from error


class RepeatedNameError(JsonTextError):
    """An object in a JSON text has a name twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        name = repr(excerpt(twice))
        raise RepeatedNameError(f"The text is not JSON: an object has the name {name} twice.")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too great for a 64-bit float")
    return number


def read_integer(digits: str) -> int:
    """Return a whole number from its digits.

    Args:
        digits: decimal digits, with an optional minus sign.

    Raises:
        ValueError: the number has more digits than Python reads; the message says how many.
    """
    try:
        return int(digits)
    except ValueError:
        most = sys.get_int_max_str_digits()
        raise ValueError(
            f"an integer has {len(digits.lstrip('-')):,} digits, and at most {most:,} can be read"
        ) from None


def dump(value: Any, default: Callable[[Any], Any] | None = None, option: int = 0) -> bytes:
    """Return the JSON text of a value from :func:`load_exact`, in UTF-8.

    ``orjson`` writes it. Great integers and lone surrogates, which ``orjson`` refuses, are written
    by ``json``, in ASCII. Infinities and NaN become ``null``.

    Args:
        value: JSON values, and values that ``default`` turns into them.
        default: returns a JSON value in place of another value, as in ``orjson``; ``None`` for
            none.
        option: options of ``orjson``; 0 for none. ``json`` heeds only ``OPT_INDENT_2`` and
            ``OPT_SORT_KEYS``.

    Raises:
        JsonTextError: the value is nested too deep.
        TypeError: the value holds a type that JSON does not have.
        ValueError: the value contains itself, or an integer of more digits than Python writes.
    """
    try:
        return orjson.dumps(value, default, option)
    except orjson.JSONEncodeError:
        indent = 2 if option & orjson.OPT_INDENT_2 else None
        between, is_sorted = None if indent else (",", ":"), bool(option & orjson.OPT_SORT_KEYS)
        try:
            text = json.dumps(
                value, default=default, indent=indent, separators=between, sort_keys=is_sorted
            )
        except RecursionError:
            raise JsonTextError("The value is nested too deeply to be written.") from None
        return without_constants(text.encode())


def load_with_constants(text: bytes) -> Any:
    """Return a value as :func:`load_exact`, in which NaN and infinities are floats.

    So a count that is none of the numbers of JSON does not count as missing.

    Args:
        text: JSON in UTF-8, but for such numbers.

    Raises:
        JsonTextError: the text is not JSON even so, or is nested too deep.
    """
    try:
        return json.loads(text.decode(), parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise JsonTextError(f"The text is not JSON: {error}.") from error


def without_constants(text: bytes) -> bytes:
    """Return a text in which NaN and infinities outside of strings, which are no JSON, are null.

    A text without them is returned itself.

    Args:
        text: JSON, or events whose data are JSON.
    """
    if b"NaN" not in text and b"Infinity" not in text:
        return text
    return _CONSTANTS.sub(_null, text)


def sound_text(text: str) -> str:
    """Return ``text`` as valid Unicode: surrogate pairs joined, unpaired halves as U+FFFD.

    A text that is valid already is returned itself.

    Args:
        text: any text.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def sound(value: Any) -> Any:
    """Return a copy of a JSON value in which every text and name is valid Unicode.

    Surrogate pairs are joined, and unpaired halves become U+FFFD, as in :func:`sound_text`; NUL
    stays. Of two names that become equal, the last one counts.

    Args:
        value: a JSON value, which is not changed.

    Raises:
        JsonTextError: the value is nested too deep.
    """
    try:
        return _sound(value)
    except RecursionError:
        raise JsonTextError("The value is nested too deeply to be read.") from None


def _sound(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return sound_text(value)
    if kind is dict:
        return {sound_text(name): _sound(item) for name, item in value.items()}
    if kind is list or kind is tuple:
        return kind(map(_sound, value))
    return value


def _null(found: re.Match[bytes]) -> bytes:
    return found[0] if found[0].startswith(b'"') else b"null"


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts
        return float(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
