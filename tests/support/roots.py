"""Roots with everything that ships: made once in each process, and copied for each test."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

from remit.kernel.root import Root
from remit.runtime import make_root

__all__ = ["new_root"]


def new_root(place: Path, toml: str = "", *, database: str = "") -> Path:
    """Make a root.

    Args:
        place: its directory, which is not there yet.
        toml: appended to its ``remit.toml``.
        database: where its ledger is to be, such as the URL of an empty PostgreSQL database;
            a file in the root when left out.

    Returns:
        Its directory.
    """
    if database:
        _make(place, database)
    else:
        shutil.copytree(_made(), place, symlinks=True)
    if toml:
        with (place / "remit.toml").open("a", encoding="utf-8") as file:
            file.write(toml)
    return place


@functools.cache
def _made() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="remit-root-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return _make(directory / "root")


def _make(place: Path, database: str = "") -> Path:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REMIT_")}
    with mock.patch.dict(os.environ, kept, clear=True):
        make_root(Root(place), flags={"ledger.path": database} if database else None)
    return place
