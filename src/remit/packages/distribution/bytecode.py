"""Comparison of compiled Python files with their sources (PEP 552).

RECORD contains no hash of a ``.pyc``, and Python runs one whose header has the source's time and
size without reading the source. So every such file is compiled again and compared.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import stat
from collections.abc import Iterator
from pathlib import Path

# Constants of PEP 552.
_HEAD = 16
_HASH_BASED = 0b01
_CHECKED = 0b10
_LEVELS = (0, 1, 2)
_MARSHAL_VERSION = 2  # Equal code has equal bytes in this version, which has no references.

# Digests of sources together with compiled forms that this process found equal, so that it does
# not compile them again.
_equal_code: set[bytes] = set()


def compiled_problems(source: Path, content: bytes, shown: str) -> Iterator[str]:
    """Yield faults of the compiled forms of one module, for the running version of Python.

    Each fault is a sentence: a ``.pyc`` that is not a file, cannot be read, is never checked
    against its source, or has other code. All levels of optimisation are looked at, also below
    ``PYTHONPYCACHEPREFIX``. Missing files, and those that Python would ignore, are no fault. The
    code is compiled and not run; equal code is remembered, so that the process does not compile it
    again.

    Args:
        source: the ``.py`` file.
        content: the file's bytes.
        shown: the file's name in messages.

    Raises:
        OSError: the source cannot be examined.
    """
    folder = source.parent / "__pycache__"
    for level in _LEVELS:
        # PYTHONPYCACHEPREFIX moves compiled forms, but other processes may run without it.
        moved = importlib.util.cache_from_source(str(source), optimization=level or "")
        for place in {moved, f"{folder}/{os.path.basename(moved)}"}:
            try:
                if not stat.S_ISREG(os.stat(place).st_mode):
                    yield f"{place} is not a file."
                    continue
                with open(place, "rb") as stream:
                    data = stream.read()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                yield f"{place} cannot be read: {error.strerror}."
                continue
            flags = int.from_bytes(data[4:8], "little")
            if (
                data[:4] != importlib.util.MAGIC_NUMBER
                or len(data) < _HEAD
                or flags & ~(_HASH_BASED | _CHECKED)
            ):
                continue  # Python ignores files of other versions and damaged ones.
            if flags & _HASH_BASED and not flags & _CHECKED:
                yield f"{place} is run without a look at {shown} (an unchecked hash-based .pyc)."
            elif data[8:_HEAD] == _expected(flags, source, content) and not _same_code(
                data[_HEAD:], content, source, level
            ):
                yield f"{place} holds other code than {shown}, and Python would run it."


def _expected(flags: int, source: Path, content: bytes) -> bytes:
    """Return the rest of the header with which Python accepts compiled code for a source."""
    if flags & _HASH_BASED:
        return importlib.util.source_hash(content)
    time = int(os.stat(source).st_mtime)
    return b"".join((n & 0xFFFFFFFF).to_bytes(4, "little") for n in (time, len(content)))


def _same_code(body: bytes, content: bytes, source: Path, level: int) -> bool:
    head = f"{level} {len(content)} {source}".encode(errors="surrogateescape")
    digest = hashlib.sha256(b"%d %b%b%b" % (len(head), head, content, body)).digest()
    if digest not in _equal_code and _compiles_to(body, content, source, level):
        _equal_code.add(digest)
    return digest in _equal_code


def _compiles_to(body: bytes, content: bytes, source: Path, level: int) -> bool:
    try:
        # Loading hostile bytes is a risk, but Python has loaded these at the import already.
        loaded = marshal.loads(body)  # noqa: S302
        made = compile(content, str(source), "exec", dont_inherit=True, optimize=level)
        # Installers may compile a file before they move it, so the file name may differ.
        there, here = (marshal.dumps(code.co_filename, _MARSHAL_VERSION) for code in (loaded, made))
        left, right = (marshal.dumps(code, _MARSHAL_VERSION) for code in (loaded, made))
    except (SyntaxError, ValueError, TypeError, EOFError, AttributeError):
        return False
    return left.replace(there, here) == right
