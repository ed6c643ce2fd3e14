"""The journal of operations: what makes an install all or nothing (SPEC 10, ADR 32).

An operation lies in ``HOT/installed/.journal/OPERATION_ID/``: ``plan.json``, the new files under
``new/``, what they replace under ``old/``, archives and signatures under ``archives/``. The
folder appears under its name by one rename, when it is whole and durable. Its entry in the ledger
is the one moment at which the operation is done: before it everything can be undone, after it
everything can be finished, from the folder alone and as often as needed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from remit.kernel.canonical import canonical_json, sha256_hex

__all__ = [
    "INSTALLED_FOLDER",
    "JOURNAL_FOLDER",
    "Operation",
    "Step",
    "put_file",
    "remove_file",
    "replace_file",
]

INSTALLED_FOLDER = "HOT/installed"
JOURNAL_FOLDER = f"{INSTALLED_FOLDER}/.journal"
_UNFINISHED = ".tmp"
_TIERS = ("HOT", "HO2", "HO1")

Step = Callable[[str], None]
"""Told before each step, by its name and what it is about."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation whose files are staged.

    Attributes:
        place: ``{"path", "sha256", "replaces"}`` of every file that comes.
        drop: paths of files that go.
        packages: ids of the packages that it brings or takes away.
    """

    root: Path
    operation_id: str
    place: Sequence[Mapping[str, Any]]
    drop: Sequence[str]
    packages: Sequence[str]

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.root / JOURNAL_FOLDER / self.operation_id

    @classmethod
    def stage(
        cls,
        root: Path,
        operation_id: str,
        *,
        files: Mapping[str, bytes],
        drop: Iterable[str] = (),
        archives: Mapping[str, bytes],
        packages: Iterable[str],
        step: Step,
    ) -> Self:
        """Write everything that the operation needs; nothing of the root changes.

        Args:
            root: the root's directory.
            operation_id: its name.
            files: content by path of what comes.
            drop: paths of what goes.
            archives: content by name below ``HOT/installed/`` of what is kept.
            packages: see the attribute.
            step: told of each step.

        Raises:
            OSError: the disk does not take it; what was written is taken away again.
        """
        place = [
            {
                "path": path,
                "sha256": sha256_hex(data),
                "replaces": os.path.lexists(root / path),
            }
            for path, data in files.items()
        ]
        operation = cls(root, operation_id, place, tuple(drop), tuple(packages))
        beside = operation.folder.with_name(operation_id + _UNFINISHED)
        try:
            _make_folder(beside, root)
            for number, (path, data) in enumerate(files.items()):
                step(f"stage {path}")
                _write(beside / "new" / str(number), data)
                if place[number]["replaces"]:
                    _keep(root / path, beside / "old" / str(number))
            for name, data in archives.items():
                _write(beside / "archives" / name, data)
            plan = {
                "operation_id": operation_id,
                "place": place,
                "drop": list(operation.drop),
                "packages": list(operation.packages),
            }
            _write(beside / "plan.json", canonical_json(plan))
            for folder, _, _ in os.walk(beside):
                _sync_folder(Path(folder))
            step("journal")
            beside.rename(operation.folder)
            _sync_folder(operation.folder.parent)
        except OSError:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        return operation

    @staticmethod
    def is_pending(root: Path) -> bool:
        """Whether a killed process left something."""
        journal = root / JOURNAL_FOLDER
        return journal.is_dir() and any(journal.iterdir())

    @classmethod
    def pending(cls, root: Path) -> list[Self]:
        """The operations that a killed process left; what was not whole yet is taken away.

        Raises:
            PackageError: ``journal_damaged``: something lies there that no operation leaves.
        """
        found = []
        waste = []
        journal = root / JOURNAL_FOLDER
        from remit.packages.journal_plan import check_journal, read_plan  # seldom needed

        check_journal(root, JOURNAL_FOLDER)
        for folder in sorted(journal.iterdir()) if journal.is_dir() else ():
            if folder.name.endswith(_UNFINISHED):
                waste.append(folder)
                continue
            try:
                plan = read_plan(root, folder, INSTALLED_FOLDER)
            except FileNotFoundError:  # killed while the folder was being taken away
                waste.append(folder)
                continue
            found.append(
                cls(root, plan["operation_id"], plan["place"], plan["drop"], plan["packages"])
            )
        for folder in waste:  # when all the others were found to be what they say
            shutil.rmtree(folder, ignore_errors=True)
        return found

    def put_in_place(self, step: Step) -> None:
        """Move the new files to where they belong, and look at them there.

        Raises:
            OSError: one could not be moved, or does not hold what it should.
        """
        folders = set()
        for number, item in enumerate(self.place):
            step(f"place {item['path']}")
            target = self.root / item["path"]
            _make_folder(target.parent, self.root)
            os.replace(self.folder / "new" / str(number), target)
            folders.add(target.parent)
        for folder in sorted(folders):
            _sync_folder(folder)
        for item in self.place:
            step(f"check {item['path']}")
            if sha256_hex((self.root / item["path"]).read_bytes()) != item["sha256"]:
                raise OSError(None, "it does not hold what was written", item["path"])

    def undo(self) -> None:
        """Make the root what it was; may be done again.

        Raises:
            OSError: the disk does not take it; the folder stays for another time.
        """
        folders = set()
        for number, item in enumerate(self.place):
            target = self.root / item["path"]
            folder = target.parent
            if item["replaces"]:
                with contextlib.suppress(FileNotFoundError):  # put back before
                    os.replace(self.folder / "old" / str(number), target)
            else:
                if not (self.folder / "new" / str(number)).exists():
                    target.unlink(missing_ok=True)
                folder = _remove_empty(folder, self.root)
            folders.add(folder)
        for folder in sorted(folders):
            if folder.is_dir():
                _sync_folder(folder)
        self.close()

    def finish(
        self, drop: Iterable[str], documents: Mapping[str, bytes | None], step: Step
    ) -> None:
        """Do what follows the entry in the ledger; may be done again.

        Args:
            drop: paths of files that go.
            documents: by path, registries and receipts to write, in order; ``None`` takes the
                whole folder of a receipt away.
            step: told of each step.
        """
        folders = set()
        for path in drop:
            step(f"drop {path}")
            (self.root / path).unlink(missing_ok=True)
            folders.add(_remove_empty((self.root / path).parent, self.root))
        kept = self.folder / "archives"
        for file in sorted(kept.rglob("*")) if kept.is_dir() else ():
            if file.is_file():
                step(f"keep {file.name}")
                target = self.root / INSTALLED_FOLDER / file.relative_to(kept)
                _make_folder(target.parent, self.root)
                os.replace(file, target)
                folders.add(target.parent)
        for folder in sorted(folders):
            if folder.is_dir():
                _sync_folder(folder)
        for path, data in documents.items():
            step(f"write {path}")
            if data is not None:
                put_file(self.root, path, data)
            elif (self.root / path).parent.is_dir():
                shutil.rmtree((self.root / path).parent)
        step("close")
        self.close()

    def close(self) -> None:
        """Take the folder away: nothing is left to do."""
        gone = self.folder.with_name(self.operation_id + _UNFINISHED)
        self.folder.rename(gone)
        _sync_folder(gone.parent)
        shutil.rmtree(gone, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    """Write a new file, durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Give a file this content: all of it or none, however the process ends."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    _write(beside, data)
    os.replace(beside, path)
    _sync_folder(path.parent)


def put_file(root: Path, path: str, data: bytes) -> None:
    """Give a file of a root this content, as :func:`replace_file`, and leave nothing beside it.

    In a tier folder every file has an owner, so that what a killed process leaves lies in the
    journal, where the next operation takes it away. Whoever calls holds the packages' lock.
    """
    target, scratch = root / path, root / JOURNAL_FOLDER / f"{secrets.token_hex(8)}{_UNFINISHED}"
    try:
        scratch.mkdir(parents=True)
        _write(scratch / "file", data)
        _make_folder(target.parent, root)
        os.replace(scratch / "file", target)
        _sync_folder(target.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove_file(root: Path, path: str) -> None:
    """Take away a file of a root, durably, and the folders that are empty then."""
    (root / path).unlink(missing_ok=True)
    _sync_folder(_remove_empty((root / path).parent, root))


def _keep(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # not every file system has links
        _write(target, source.read_bytes())


def _remove_empty(folder: Path, root: Path) -> Path:
    """Take away a folder and those above it that are empty then; returns the first that stays."""
    tiers = {root / tier for tier in _TIERS}
    while folder not in tiers and folder != root:
        try:
            folder.rmdir()
        except FileNotFoundError:  # it was never made, or is gone already
            pass
        except OSError:
            break
        folder = folder.parent
    return folder


def _make_folder(folder: Path, root: Path) -> None:
    """Make a folder of the root and those above it, durably."""
    missing = []
    while folder != root and not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        _sync_folder(one.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
