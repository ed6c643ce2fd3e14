"""One operation at a time, over all processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from remit.kernel.installation import LOCK_FILE
from remit.packages.errors import PackageError

_POLL_S = 0.05


@contextlib.contextmanager
def file_lock(file: Path, wait_s: float) -> Iterator[int]:
    """Hold a lock, which the kernel releases when the process ends, however that happens.

    Args:
        file: made when it is missing; what it holds names the process in the error.
        wait_s: how long to wait for another process, in seconds.

    Returns:
        The open file's descriptor.

    Raises:
        PackageError: ``busy``: another process holds it.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                    raise PackageError(
                        "busy",
                        f"Another process{holder and f' ({holder})'} has held the lock {file} for "
                        f"{wait_s:g} s.",
                        next_step="Wait for it, or raise packages.lock_timeout_s.",
                    ) from None
                time.sleep(_POLL_S)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def package_lock(root: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of a root's packages.

    Args:
        root: the root's directory.
        wait_s: how long to wait for another process, in seconds.

    Raises:
        PackageError: ``busy``: another process holds it; ``unwritable``: it cannot be taken.
    """
    file = root / LOCK_FILE
    with contextlib.ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = stack.enter_context(file_lock(file, wait_s))
        except OSError as error:
            raise PackageError(
                "unwritable",
                f"The packages of {root} cannot be changed: {error.strerror or error}.",
                next_step="Make the root writable for this user.",
            ) from error
        with contextlib.suppress(OSError):  # for people; a full disk must not stop a removal
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
