"""The installed distribution, compared with the RECORD that its installer wrote."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from remit.kernel.durable_files import read_regular
from remit.packages.distribution.bytecode import compiled_problems

PACKAGE = "remit"
_REQUIRED_FILES = ("METADATA", "WHEEL", "entry_points.txt")
_INFO = re.compile(rf"{PACKAGE}-([0-9][^-/]*)\.dist-info")
_BYTECODE_PATH = re.compile(r"(.*/)?__pycache__/[^/]*\.pyc")
_VERSION = re.compile(rb'^__version__ = "([^"\\]+)"$', re.M)


def record_row(path: str, data: bytes) -> list[str]:
    """Return the three columns of RECORD for one file: path, hash and size.

    The hash is ``sha256=`` and base64 for URLs without padding. The size is decimal text, in bytes.

    Args:
        path: the path in the wheel.
        data: the file's bytes.
    """
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return [path, f"sha256={digest}", str(len(data))]


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installation of Remit on this machine; immutable.

    :meth:`current` and :meth:`at` find an installation without a check. :meth:`problems` compares
    its files with RECORD at each call, and :meth:`modules` lists its modules.

    Attributes:
        version: the version in its metadata, or in its code if there is no metadata.
        editable: True if its metadata says so and RECORD contains no hashes of its code, which is
            elsewhere. The caller decides whether to accept that.
        location: the directory of the package ``remit``.
        info: its ``.dist-info`` directory; ``None`` if there is none.
        running: True if this process runs it.
    """

    version: str
    editable: bool
    location: Path
    info: Path | None
    running: bool = False

    @classmethod
    def current(cls) -> Distribution:
        """Return the distribution that this process runs, found by the place of this module.

        ``info`` is ``None`` if no metadata belongs to the module, neither next to it nor, for an
        editable installation, on ``sys.path``. Nothing is checked. No error is raised.
        """
        # The path is not resolved, because some installers place links to files elsewhere.
        location = Path(__file__).absolute().parents[2]
        info = next(iter(_infos(location.parent)), None)
        for entry in () if info else dict.fromkeys(sys.path):
            for found in _infos(Path(entry or os.curdir).absolute()):
                if _is_editable(found) and _leads_to(found, location):
                    return cls._of(found, location, running=True)
        return cls._of(info, location, running=True)

    @classmethod
    def at(cls, directory: Path) -> Distribution:
        """Return the distribution in a directory of installed packages (``…/site-packages``).

        Without metadata, ``info`` is ``None``. Nothing is checked, and the package need not be
        there.

        Args:
            directory: the directory; if it cannot be read, it counts as empty.
        """
        return cls._of(next(iter(_infos(directory)), None), directory / PACKAGE)

    @classmethod
    def _of(cls, info: Path | None, location: Path, *, running: bool = False) -> Distribution:
        version = _metadata_version(info) if info else ""
        editable = info is not None and _is_editable(info)
        return cls(version or _stated_version(location), editable, location, info, running)

    def problems(self) -> list[str]:
        """Return the differences from the installed state, a sentence each; empty if there are
        none.

        Compared with RECORD: every file of the package and of its metadata, unknown files, and
        RECORD itself. Compared with its source: every ``.pyc`` that this version of Python would
        run. If this process runs the distribution, each loaded module must be from it. The code of
        an editable installation has no hashes, so only the rest is compared.

        Raises:
            OSError: a source cannot be examined.
        """
        content, problems = self.files()
        for path, data in content.items():
            if path.startswith(f"{PACKAGE}/") and path.endswith(".py"):
                problems += compiled_problems(self.location.parent / path, data, path)
        if self.running:
            problems += _loaded_elsewhere(self.location)
        return problems

    def modules(self) -> dict[str, Path]:
        """Return the file of every module of the package, by dotted name, sorted.

        Modules are files with a suffix that Python imports, without those of ``__pycache__``; a
        package's ``__init__`` has the package's name. Folders that cannot be read are
        skipped; nothing is imported.
        """
        suffixes = sorted(all_suffixes(), key=len, reverse=True)
        found: dict[str, Path] = {}
        for path in _walk(self.location, []):
            if suffix := next((each for each in suffixes if path.endswith(each)), None):
                parts = [PACKAGE, *path.removesuffix(suffix).split("/")]
                if parts[-1] == "__init__":
                    parts.pop()
                found[".".join(parts)] = self.location / path
        return dict(sorted(found.items()))

    def files(self) -> tuple[dict[str, bytes], list[str]]:
        """Return the files of a wheel by their path in it, and the differences from RECORD.

        A file that differs from RECORD, is not named there or cannot be read is left out. The code
        of an editable installation, of which RECORD has no hashes, is included without its hidden
        files.

        Returns:
            Content by path in the wheel, without RECORD and compiled files; and a sentence for each
            difference, missing file and contradiction in the metadata. Without metadata, no content
            and one sentence.
        """
        info = self.info
        if info is None:
            return {}, [
                f"{self.location} is not an installed distribution: no {PACKAGE}-….dist-info "
                "belongs to it, so no RECORD lists its files."
            ]
        rows, problems = _record(info)
        problems += self._misstated(info, rows)
        places = {f"{info.name}/{path}": info / path for path in _walk(info, problems)}
        places.pop(f"{info.name}/RECORD", None)  # RECORD cannot contain its own hash.
        for path in _walk(self.location, problems):
            # Hidden files of editors are no part of the source.
            if not (self.editable and (path.endswith(".pyc") or "/." in f"/{path}")):
                places[f"{PACKAGE}/{path}"] = self.location / path
        content: dict[str, bytes] = {}
        for path, place in places.items():
            stated = rows.pop(path, None)
            if stated is None and not (self.editable and path.startswith(f"{PACKAGE}/")):
                problems.append(f"{path} exists, but RECORD does not name it.")
                continue
            try:
                data = read_regular(place, follow=True)
            except OSError as error:
                problems.append(f"{path} cannot be read: {error.strerror}.")
                continue
            if problem := _difference(stated, record_row(path, data)):
                problems.append(f"{path} {problem}.")
            else:
                content[path] = data
        return content, problems + [f"{path} is missing." for path in rows]

    def _misstated(self, info: Path, rows: Mapping[str, list[str]]) -> Iterator[str]:
        for other in _infos(info.parent):
            if other != info:
                yield f"{other.name} is there as well as {info.name}."
        needed = [f"{info.name}/{name}" for name in _REQUIRED_FILES]
        for path in [*needed, *([] if self.editable else [f"{PACKAGE}/__init__.py"])]:
            if path not in rows:
                yield f"RECORD does not name {path}."
        if not self.editable and _origin(info).get("editable") is True:
            yield (
                f"{info.name}/direct_url.json says that it is an editable installation, and it is "
                "a regular one."
            )
        stated, version = _stated_version(self.location), _metadata_version(info)
        if stated != version:
            yield f"The code has version {stated!r}, but its metadata says {version!r}."
        if info.name != f"{PACKAGE}-{version}.dist-info":
            yield f"{info.name} is the name for another version than {version!r}."


def project_of(info: Path) -> Path | None:
    """Return the source directory that ``direct_url.json`` states; ``None`` if it states none.

    The installation need not be editable, and the directory need not exist. A missing or malformed
    file states nothing.

    Args:
        info: the ``.dist-info`` directory.
    """
    url = urlsplit(str(_origin(info).get("url", "")))
    return Path(unquote(url.path)) if url.scheme == "file" else None


def _record(info: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Return the rows of RECORD by path, without compiled forms, and faults of RECORD."""
    try:
        text = read_regular(info / "RECORD", follow=True).decode()
        table = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return {}, [f"{info / 'RECORD'} cannot be read: {error}."]
    rows: dict[str, list[str]] = {}
    problems: list[str] = []
    for number, row in enumerate(table, 1):
        if len(row) != 3:
            problems += [f"RECORD, line {number}: it has {len(row)} columns, not 3."] if row else []
        elif row[0] in rows:
            problems.append(f"RECORD, line {number}: {row[0]!a} is there twice.")
        elif row[0].startswith((f"{PACKAGE}/", f"{info.name}/")) and not _BYTECODE_PATH.fullmatch(
            row[0]
        ):
            rows[row[0]] = row
    rows.pop(f"{info.name}/RECORD", None)
    return rows, problems


def _difference(stated: list[str] | None, actual: list[str]) -> str:
    if stated is None:
        return ""
    _, digest, size = stated
    if not digest:
        return "has no hash in RECORD"
    if digest != actual[1]:
        return f"has the hash {actual[1]}, RECORD says {digest!a}"
    if size not in ("", actual[2]):
        return f"has {actual[2]} bytes, RECORD says {size!a}"
    return ""


def _infos(directory: Path) -> list[Path]:
    try:
        found = [entry.name for entry in os.scandir(directory) if _INFO.fullmatch(entry.name)]
    except OSError:
        return []  # sys.path may name missing directories.
    return [directory / name for name in sorted(found)]


def _walk(top: Path, problems: list[str]) -> Iterator[str]:
    """Yield every file below ``top`` except compiled forms; a link to a directory is a problem."""

    def failed(error: OSError) -> None:
        problems.append(f"{error.filename} cannot be read: {error.strerror}.")

    for folder, names, files in os.walk(top, onerror=failed):
        for name in names:
            if os.path.islink(f"{folder}/{name}"):
                problems.append(f"{folder}/{name} is a link to a directory.")
        for name in files:
            path = f"{folder}/{name}".removeprefix(f"{top}/")
            if not _BYTECODE_PATH.fullmatch(path):
                yield path


def _bytes(path: Path) -> bytes:
    try:
        return read_regular(path, follow=True)
    except OSError:
        return b""


def _origin(info: Path) -> Mapping[str, Any]:
    """Return the statement of ``direct_url.json`` (PEP 610) about a source directory, or {}."""
    try:
        found = json.loads(_bytes(info / "direct_url.json"))
        return {"url": str(found["url"]), **found["dir_info"]}
    except (ValueError, KeyError, TypeError):
        return {}


def _is_editable(info: Path) -> bool:
    """Return True if the code of ``info`` is elsewhere, so that RECORD has no hashes of it.

    ``direct_url.json`` alone is not trusted, because whoever changes the code can write it too.
    """
    if _origin(info).get("editable") is not True or os.path.lexists(info.parent / PACKAGE):
        return False
    return not any(path.startswith(f"{PACKAGE}/") for path in _record(info)[0])


def _leads_to(info: Path, location: Path) -> bool:
    project = project_of(info)
    return project is None or location.resolve().is_relative_to(project.resolve())


def _metadata_version(info: Path) -> str:
    return str(BytesHeaderParser().parsebytes(_bytes(info / "METADATA")).get("Version", ""))


def _stated_version(location: Path) -> str:
    """Return the version in the code at ``location``, which is read and not run."""
    found = _VERSION.search(_bytes(location / "_version.py"))
    return found[1].decode(errors="replace") if found else ""


def _loaded_elsewhere(location: Path) -> Iterator[str]:
    for name, module in sorted(sys.modules.items()):
        if name == PACKAGE or name.startswith(f"{PACKAGE}."):
            file = getattr(module, "__file__", None)
            places = [file] if file else list(getattr(module, "__path__", []))
            if not places or not all(
                Path(place).absolute().is_relative_to(location) for place in places
            ):
                yield f"The module {name} was loaded from {places or 'nowhere'}, not {location}."
