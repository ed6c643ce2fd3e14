"""Whether what Python compiled from a source is still that source (PEP 552).

RECORD has no hash of a ``.pyc``, and Python runs one without a look at the source's content:
one with the right time and size in its head is believed. So each that would be believed is
compiled anew and compared.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

__all__ = ["compiled_problems"]

# Constants of PEP 552.
_HEAD = 16
_HASH_BASED = 0b01
_CHECKED = 0b10
_LEVELS = (0, 1, 2)


def compiled_problems(source: Path, content: bytes, shown: str) -> Iterator[str]:
    """What is wrong with the compiled forms of one module, for this version of Python.

    Args:
        source: the ``.py`` file.
        content: what it holds.
        shown: its name in the messages.
    """
    for level, place in _places(source):
        try:
            found = os.stat(place)
            if not stat.S_ISREG(found.st_mode):
                yield f"{place} is not a file."
                continue
            data = place.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            yield f"{place} cannot be read: {error.strerror}."
            continue
        if data[:4] != importlib.util.MAGIC_NUMBER or len(data) < _HEAD:
            continue  # another version's, or cut: Python compiles anew
        flags = int.from_bytes(data[4:8], "little")
        if flags & ~(_HASH_BASED | _CHECKED):
            continue  # likewise
        if flags & _HASH_BASED and not flags & _CHECKED:
            yield f"{place} is run without a look at {shown} (an unchecked hash-based .pyc)."
        elif _believed(data, flags, source, content) and not _same_code(
            data[_HEAD:], content, source, level
        ):
            yield f"{place} holds other code than {shown}, and Python would run it."


def _places(source: Path) -> Iterator[tuple[int, Path]]:
    """Where Python keeps the compiled forms of a source, by level of optimization."""
    seen: set[Path] = set()
    for level in _LEVELS:
        # PYTHONPYCACHEPREFIX moves them; another process may run without it.
        kept = Path(importlib.util.cache_from_source(str(source), optimization=level or ""))
        for place in (kept, source.parent / "__pycache__" / kept.name):
            if place not in seen:
                seen.add(place)
                yield level, place


def _believed(data: bytes, flags: int, source: Path, content: bytes) -> bool:
    if flags & _HASH_BASED:
        return data[8:_HEAD] == importlib.util.source_hash(content)
    time = int(os.stat(source).st_mtime) & 0xFFFFFFFF
    size = len(content) & 0xFFFFFFFF
    return data[8:_HEAD] == time.to_bytes(4, "little") + size.to_bytes(4, "little")


def _same_code(body: bytes, content: bytes, source: Path, level: int) -> bool:
    try:
        # Hostile bytes can harm whoever loads them; Python has loaded these at the import.
        loaded = marshal.loads(body)  # noqa: S302
        made = compile(content, str(source), "exec", dont_inherit=True, optimize=level)
    except (SyntaxError, ValueError, TypeError, EOFError):
        return False
    return isinstance(loaded, CodeType) and _equal(loaded, made)


def _equal(left: CodeType, right: CodeType) -> bool:
    # Equality of code leaves out, in some versions, where an exception goes.
    return (
        left == right
        and left.co_exceptiontable == right.co_exceptiontable
        and left.co_flags == right.co_flags
        and left.co_stacksize == right.co_stacksize
        and all(
            _equal(one, other)
            for one, other in zip(left.co_consts, right.co_consts, strict=True)
            if isinstance(one, CodeType)
        )
    )
