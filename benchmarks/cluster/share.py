"""A share of a core for a process, so that what serves it never is what is full (Linux, root)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TOP = Path("/sys/fs/cgroup")
_PERIOD_US = 20_000


@contextmanager
def held_to(pid: int, share: float) -> Iterator[None]:
    """Hold a process to a share of one core, with all its threads, while the block runs.

    Args:
        pid: the process.
        share: of a core; 0 for no limit.

    Raises:
        OSError: there is no controller of processor time here, or it may not be used.
    """
    if not share:
        yield
        return
    first = (_TOP / "cpu").is_dir()  # version 1 of cgroups
    above = _TOP / "cpu" if first else _TOP
    group = above / f"remit-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        quota = int(share * _PERIOD_US)
        if first:
            (group / "cpu.cfs_period_us").write_text(f"{_PERIOD_US}")
            (group / "cpu.cfs_quota_us").write_text(f"{quota}")
        else:
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        (group / "cgroup.procs").write_text(f"{pid}")
        yield
    finally:
        for one in (group / "cgroup.procs").read_text().split():
            (above / "cgroup.procs").write_text(one)
        group.rmdir()
