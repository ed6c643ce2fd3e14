"""Files of a root, written durably: all of a file or none, however the process ends."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from remit.kernel.canonical import sha256_hex
from remit.packages.errors import PackageError
from remit.packages.paths import TIERS

__all__ = [
    "INSTALLED_FOLDER",
    "JOURNAL_FOLDER",
    "SCRATCH",
    "Step",
    "check_folders",
    "disk_errors",
    "holds",
    "make_folder",
    "put_file",
    "remove_file",
    "replace_file",
    "sync_folder",
    "write_new",
]

INSTALLED_FOLDER = "HOT/installed"
JOURNAL_FOLDER = f"{INSTALLED_FOLDER}/.journal"
SCRATCH = ".tmp"
"""How the name of a folder in the journal ends that can be deleted at any time."""

Step = Callable[[str], None]
"""Called before each step of an operation with its name and the path that it changes."""


def holds(path: Path, digest: str) -> bool:
    """Whether there is a file, no link, with that hash (``sha256:`` and 64 hex digits)."""
    try:
        regular = stat.S_ISREG(os.lstat(path).st_mode)  # opening a pipe would wait for ever
        return regular and f"sha256:{sha256_hex(path.read_bytes())}" == digest
    except OSError:
        return False


def check_folders(root: Path, path: str) -> None:
    """Make sure that nothing above ``path``, where it exists, is a link or a file.

    Raises:
        PackageError: ``linked_folder``.
    """
    for folder in reversed(Path(path).parents[:-1]):
        try:
            mode = os.lstat(root / folder).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(mode):
            raise PackageError(
                "linked_folder",
                f"{root / folder} is not a folder of its own but a link or file.",
                next_step="Move it away; files are never written through links.",
            )


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Raises :class:`PackageError` (``unwritable``) for an ``OSError``."""
    try:
        yield
    except OSError as error:
        raise PackageError(
            "unwritable",
            f"The disk does not accept a change: {error.strerror or error}"
            + (f" ({error.filename})." if error.filename else "."),
            next_step="Free space or make the root writable; nothing was changed.",
        ) from error


def replace_file(path: Path, data: bytes, mode: int | None = None) -> None:
    """Give a file this content; and that mode, whatever the umask, where one is given."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    write_new(beside, data, mode)
    os.replace(beside, path)
    sync_folder(path.parent)


def put_file(root: Path, path: str, data: bytes) -> None:
    """Give a file of a root this content; the caller holds the packages' lock.

    In a tier folder every file has an owner, so that what a killed process leaves is in the
    journal, where the next operation deletes it.

    Raises:
        PackageError: ``linked_folder``.
        OSError: the disk does not accept it.
    """
    check_folders(root, path)
    target, scratch = root / path, root / JOURNAL_FOLDER / f"{secrets.token_hex(8)}{SCRATCH}"
    try:
        scratch.mkdir(parents=True)
        write_new(scratch / "file", data)
        make_folder(target.parent, root)
        os.replace(scratch / "file", target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove_file(root: Path, path: str) -> None:
    """Delete a file of a root, durably, and the folders that are empty then.

    Raises:
        PackageError: ``linked_folder``.
        OSError: the disk does not accept it.
    """
    check_folders(root, path)
    (root / path).unlink(missing_ok=True)
    folder = (root / path).parent
    tiers = {root / tier for tier in TIERS}
    while folder not in tiers and folder != root:
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            break
        folder = folder.parent
    sync_folder(folder)


def make_folder(folder: Path, root: Path) -> None:
    """Make a folder of the root and those above it, durably."""
    missing = []
    while folder != root and not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_folder(each.parent)


def write_new(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a new file, durably but for its name."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode or 0o666)) as stream:
        if mode is not None:
            os.fchmod(stream.fileno(), mode)
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
