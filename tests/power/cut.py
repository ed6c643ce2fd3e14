"""Undoes what no fsync confirmed, from the journal that the preloaded library wrote."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest import mock

__all__ = ["PowerCut", "compiled"]

_PAGE = 4096
_SOURCE = Path(__file__).with_name("power.c")
_Inode = tuple[int, int]


def compiled(directory: Path) -> Path | None:
    """Return the library, made in `directory`; None on a machine without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = directory / "power.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl",
               "-lpthread"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for path in (library, *library.parents):  # The database's own user loads it too.
        if os.stat(path).st_uid == os.getuid():
            path.chmod(path.stat().st_mode | 0o055)
    return library


@dataclass(slots=True)
class _File:
    """What a file was at its last fsync: its size, and the pages that were written since."""

    size: int
    pages: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class _Change:
    """One change of directories that is not confirmed yet."""

    kind: str
    paths: list[str]
    waits_for: str  # The directory whose fsync confirms it.


class PowerCut:
    """The disk below one directory, whose power can be cut.

    Args:
        directory: new; its files lose what was not confirmed.
        library: see :func:`compiled`.

    Attributes:
        environment: of the processes that are noted.
        undone: pages and directory changes that the cuts undid.
    """

    def __init__(self, directory: Path, library: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self._journal = directory.with_name(f"{directory.name}.journal")
        self._keep = directory.with_name(f"{directory.name}.kept")
        self._keep.mkdir()
        self._keep.chmod(0o777)
        self._journal.touch()
        self._journal.chmod(0o666)
        self.undone = 0
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library), "POWER_UNDER": str(directory),
            "POWER_JOURNAL": str(self._journal), "POWER_KEEP": str(self._keep),
        }  # fmt: skip

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Have the processes noted that are started within this."""
        with mock.patch.dict(os.environ, self.environment):
            yield

    def cut(self, chance: Random) -> None:
        """Undo what was not confirmed, all of it or a part; every noted process must be dead.

        The disk may have written any page by itself, and the directories' changes in their order.
        """
        files, changes = _read(self._journal.read_bytes())
        survive = chance.choice((0, 0, chance.randint(0, len(changes)), len(changes)))
        for change in reversed(changes[survive:]):
            _undo(change)
            self.undone += 1
        places = _places(self.directory) | _places(self._keep)
        drops_all = chance.random() < 0.5
        for inode, file in files.items():
            if inode in places:
                self.undone += _restore(places[inode], file, chance, drops_all=drops_all)
        self._journal.write_bytes(b"")
        for path in self._keep.iterdir():
            path.unlink()


def _read(journal: bytes) -> tuple[dict[_Inode, _File], list[_Change]]:
    files: dict[_Inode, _File] = {}
    changes: list[_Change] = []
    at = 0
    while at < len(journal):
        end = journal.index(b"\n", at)
        kind, *said = os.fsdecode(journal[at:end]).split("\t")
        at = end + 1
        if kind == "P":
            device, inode, page, length = map(int, said)
            before = journal[at : at + length]
            at += length
            files[device, inode].pages.setdefault(page, before)
        elif kind == "Z":
            device, inode, size = map(int, said)
            files.setdefault((device, inode), _File(size))
        elif kind == "S":
            files.pop((int(said[0]), int(said[1])), None)
        elif kind == "D":
            changes = [change for change in changes if change.waits_for != said[0]]
        else:
            name = said[1] if kind == "R" else said[0]  # A rename is done or not, never half.
            changes.append(_Change(kind, said, os.path.dirname(name)))
    return files, changes


def _undo(change: _Change) -> None:
    first, *rest = map(Path, change.paths)
    if change.kind == "C":
        first.unlink(missing_ok=True)
    elif change.kind == "M":
        shutil.rmtree(first, ignore_errors=True)
    elif change.kind == "X":
        first.mkdir()
    elif change.kind == "U":
        if change.paths[1] and first.parent.is_dir():
            os.link(rest[0], first)
    elif change.kind == "R":
        if os.path.lexists(rest[0]) and first.parent.is_dir():
            rest[0].rename(first)
        if change.paths[2] and rest[0].parent.is_dir():
            os.link(rest[1], rest[0])


def _places(directory: Path) -> dict[_Inode, Path]:
    found = {}
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            about = path.stat()
            found[about.st_dev, about.st_ino] = path
    return found


def _restore(path: Path, file: _File, chance: Random, *, drops_all: bool) -> int:
    """Put back what a file was; returns how many pages and ends of it were put back."""

    def drops() -> bool:
        return drops_all or chance.random() < 0.5

    undone, now = 0, path.stat().st_size
    size = file.size if now != file.size and drops() else now
    with path.open("r+b") as open_file:
        open_file.truncate(size)
        undone += size != now
        # A new page has no state before: it reads as zeros if its file has become longer.
        for page in {*file.pages, *range(file.size // _PAGE + 1, -(-size // _PAGE))}:
            at = page * _PAGE
            before = file.pages.get(page, b"").ljust(_PAGE, b"\0")[: max(0, size - at)]
            if before and drops():
                open_file.seek(at)
                open_file.write(before)
                undone += 1
    return undone
