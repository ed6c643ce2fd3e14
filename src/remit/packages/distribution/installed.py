"""The distribution that an installer placed, and whether it still is what was placed."""

from __future__ import annotations

import ast
import errno
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from remit.packages.distribution.compiled import compiled_problems
from remit.packages.distribution.record import Row, parse_record

__all__ = ["PACKAGE", "Distribution", "project_of"]

PACKAGE = "remit"
_RECORD = "RECORD"
_FIRST = f"{PACKAGE}/__init__.py"
_CACHE = "__pycache__"
_INFO = re.compile(rf"{PACKAGE}-([0-9][^-/]*)\.dist-info")
_UNHASHED = (_RECORD, f"{_RECORD}.jws", f"{_RECORD}.p7s")  # a file cannot hold its own hash


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installation of Remit on this machine.

    Attributes:
        version: as its metadata states it; as the code states it where there is no metadata.
        editable: its metadata says so, its code lies outside of what the installer placed, and
            no RECORD has its hashes: the caller decides whether that is good enough.
        location: the directory of the package ``remit``.
        info: its ``.dist-info`` directory; ``None`` when there is none.
        running: whether it is the one that this process runs.
    """

    version: str
    editable: bool
    location: Path
    info: Path | None
    running: bool = False

    @classmethod
    def current(cls) -> Distribution:
        """The one that this process runs, found from the place of its own code."""
        # Not resolved: some installers place links to files that they keep elsewhere.
        location = Path(__file__).absolute().parents[2]
        beside = _infos(location.parent)
        if beside:
            return cls._of(beside[0], location, running=True)
        for entry in dict.fromkeys(sys.path):
            for info in _infos(Path(entry or os.curdir).absolute()):
                found = cls._of(info, location, running=True)
                if found.editable and _leads_to(info, location):
                    return found
        return cls(_stated(location), False, location, None, running=True)

    @classmethod
    def at(cls, directory: Path) -> Distribution:
        """The one in a directory that packages are installed in (``…/site-packages``)."""
        location = directory / PACKAGE
        infos = _infos(directory)
        if not infos:
            return cls(_stated(location), False, location, None)
        return cls._of(infos[0], location)

    @classmethod
    def _of(cls, info: Path, location: Path, *, running: bool = False) -> Distribution:
        version = _metadata_version(info) or _stated(location)
        return cls(version, _is_editable(info), location, info, running)

    def problems(self) -> list[str]:
        """What is not as it was installed; empty when all of it is.

        Held against RECORD: every file of the package and of its metadata, files that RECORD
        does not know, RECORD itself. Held against its source: every ``.pyc`` that this version of
        Python would run. For an editable installation nothing has the hashes of the code, so
        only the rest is looked at.
        """
        content, found = self._examined()
        for path, data in content.items():
            if path.startswith(f"{PACKAGE}/") and path.endswith(".py"):
                found += compiled_problems(self.location.parent / path, data, path)
        if self.running:
            found += _loaded_elsewhere(self.location)
        return found

    def modules(self) -> dict[str, Path]:
        """The file of every module in the package's directory, by its dotted name, sorted."""
        suffixes = sorted(all_suffixes(), key=len, reverse=True)
        found: dict[str, Path] = {}
        for path in self._code():
            if suffix := next((one for one in suffixes if path.endswith(one)), None):
                parts = path.removesuffix(suffix).split("/")
                if parts[-1] == "__init__":
                    parts.pop()
                found[".".join(parts)] = self.location.parent / path
        return dict(sorted(found.items()))

    def files(self) -> tuple[dict[str, bytes], list[str]]:
        """What a wheel is made of, by its path there, and what is wrong with it.

        Only bytes that RECORD confirms, where it has their hash.
        """
        return self._examined()

    def _examined(self) -> tuple[dict[str, bytes], list[str]]:
        if self.info is None:
            return {}, [
                f"{self.location} is not an installed distribution: no {PACKAGE}-….dist-info "
                "belongs to it, so no RECORD says what it should be."
            ]
        content: dict[str, bytes] = {}
        rows, problems = self._record(self.info)
        problems += self._stray_infos()
        known = {path: row for path, row in rows.items() if self._governs(path)}
        for path, row in known.items():
            if path not in (f"{self.info.name}/{name}" for name in _UNHASHED):
                if not row.sha256:
                    problems.append(f"RECORD has no hash of {path}.")
                problems += self._examine(path, row, content)
        there = [f"{self.info.name}/{path}" for path in _walk(self.info, problems)]
        code = list(self._code(problems))
        if self.editable:
            for path in code:
                hidden = any(part.startswith(".") for part in path.split("/"))
                if not hidden and not path.endswith(".pyc"):
                    problems += self._examine(path, Row("", None), content)
        else:
            there += code
        problems += [
            f"{path} is there, but RECORD does not know it."
            for path in there
            if path not in known and path != f"{self.info.name}/{_RECORD}"
        ]
        return content, problems

    def _record(self, info: Path) -> tuple[dict[str, Row], list[str]]:
        try:
            data = (info / _RECORD).read_bytes()
        except OSError as error:
            return {}, [f"{info / _RECORD} cannot be read: {error.strerror}."]
        rows, problems = parse_record(data)
        needed = [f"{info.name}/METADATA", f"{info.name}/WHEEL", f"{info.name}/entry_points.txt"]
        needed += [] if self.editable else [_FIRST]
        problems += [f"RECORD does not name {path}." for path in needed if path not in rows]
        if not self.editable and _says_editable(info):
            problems.append(
                f"{info.name}/direct_url.json says that it is an editable installation, and it is "
                "a regular one."
            )
        stated, version = _stated(self.location), _metadata_version(info)
        if stated != version:
            problems.append(f"The code states version {stated!r}, its metadata {version!r}.")
        if info.name != f"{PACKAGE}-{version}.dist-info":
            problems.append(f"{info.name} is the name for another version than {version!r}.")
        return rows, problems

    def _stray_infos(self) -> list[str]:
        assert self.info is not None
        others = [other.name for other in _infos(self.info.parent) if other != self.info]
        return [f"{name} is there as well as {self.info.name}." for name in others]

    def _governs(self, path: str) -> bool:
        """Whether a row is of the package or its metadata, and not of a compiled form."""
        assert self.info is not None
        folders, _, name = path.rpartition("/")
        if folders.endswith(_CACHE) and name.endswith(".pyc"):
            return False
        return path.startswith((f"{PACKAGE}/", f"{self.info.name}/"))

    def _examine(self, path: str, row: Row, content: dict[str, bytes]) -> list[str]:
        """Reads one file; its bytes go to ``content`` when they are what RECORD says."""
        assert self.info is not None
        base = self.location if path.startswith(f"{PACKAGE}/") else self.info
        try:
            data = _plain_file(base / path.partition("/")[2])
        except FileNotFoundError:
            return [f"{path} is missing."]
        except OSError as error:
            return [f"{path} cannot be read: {error.strerror}."]
        actual = hashlib.sha256(data).hexdigest()
        if row.sha256 and actual != row.sha256:
            return [f"{path} has the SHA-256 {actual}, RECORD says {row.sha256}."]
        if row.size is not None and len(data) != row.size:
            return [f"{path} has {len(data)} bytes, RECORD says {row.size}."]
        content[path] = data
        return []

    def _code(self, problems: list[str] | None = None) -> Iterator[str]:
        """Every file in the package's directory but compiled forms where they belong."""
        for path in _walk(self.location, [] if problems is None else problems):
            folders, _, name = f"/{path}".rpartition("/")
            if not (folders.endswith(f"/{_CACHE}") and name.endswith(".pyc")):
                yield f"{PACKAGE}/{path}"


def _infos(directory: Path) -> list[Path]:
    try:
        found = [entry.name for entry in os.scandir(directory) if _INFO.fullmatch(entry.name)]
    except OSError:
        return []  # sys.path may name what is not there
    return [directory / name for name in sorted(found)]


def _walk(top: Path, problems: list[str]) -> Iterator[str]:
    """Every file under ``top``, sorted; a link to a directory is a problem and not followed."""
    waiting = [""]
    found: list[str] = []
    while waiting:
        below = waiting.pop()
        try:
            entries = list(os.scandir(top / below))
        except OSError as error:
            problems.append(f"{top / below} cannot be read: {error.strerror}.")
            continue
        for entry in entries:
            path = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{path}/")
            elif entry.is_dir():
                problems.append(f"{top / path} is a link to a directory.")
            else:
                found.append(path)
    yield from sorted(found)


def _plain_file(path: Path) -> bytes:
    # Without waiting for the other end of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file")
    with open(descriptor, "rb") as stream:
        return stream.read()


def _bytes(path: Path) -> bytes:
    try:
        return _plain_file(path)
    except OSError:
        return b""


def _direct(info: Path) -> Mapping[str, Any]:
    """What ``direct_url.json`` (PEP 610) says of a directory that was installed from."""
    try:
        origin = json.loads(_bytes(info / "direct_url.json"))
        return {"url": str(origin["url"]), **origin["dir_info"]}
    except (ValueError, KeyError, TypeError):
        return {}


def _says_editable(info: Path) -> bool:
    return _direct(info).get("editable") is True


def _is_editable(info: Path) -> bool:
    """Whether the code that belongs to ``info`` lies elsewhere, so that nothing has its hashes.

    Who changes a file may write ``direct_url.json`` as well: that alone is not believed.
    """
    if not _says_editable(info) or os.path.lexists(info.parent / PACKAGE):
        return False
    rows = parse_record(_bytes(info / _RECORD))[0]
    return not any(
        row.sha256 and path.startswith(f"{PACKAGE}/") and path.endswith(".py")
        for path, row in rows.items()
    )


def project_of(info: Path) -> Path | None:
    """The directory that an editable installation was made from, where its metadata names one."""
    url = urlsplit(_direct(info).get("url", ""))
    return Path(unquote(url.path)) if url.scheme == "file" else None


def _leads_to(info: Path, location: Path) -> bool:
    project = project_of(info)
    return project is None or location.resolve().is_relative_to(project.resolve())


def _metadata_version(info: Path) -> str:
    return str(BytesHeaderParser().parsebytes(_bytes(info / "METADATA")).get("Version", ""))


def _stated(location: Path) -> str:
    """The version that the code at ``location`` states; it is read, not run."""
    try:
        tree = ast.parse(_bytes(location / "_version.py"))
    except (SyntaxError, ValueError):
        return ""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return ""


def _loaded_elsewhere(location: Path) -> Iterator[str]:
    for name, module in sorted(sys.modules.items()):
        if name == PACKAGE or name.startswith(f"{PACKAGE}."):
            file = getattr(module, "__file__", None)
            places = [file] if file else list(getattr(module, "__path__", []))
            if not places or not all(
                Path(place).absolute().is_relative_to(location) for place in places
            ):
                yield f"The module {name} was loaded from {places or 'nowhere'}, not {location}."
