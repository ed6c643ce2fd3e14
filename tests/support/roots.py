"""Roots with everything that ships: made once in each process, and copied for each test."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

from remit import testing
from remit.kernel.root import Root
from remit.runtime import make_root
from tests.support.postgres import run_sql

__all__ = ["new_root"]


def new_root(place: Path, toml: str = "", *, database: str = "") -> Path:
    """Make a root.

    Args:
        place: its directory, which is not there yet.
        toml: appended to its ``remit.toml``.
        database: where its ledger is to be, a file or the URL of an empty PostgreSQL database;
            the root's own file when left out.

    Returns:
        Its directory.
    """
    if database.startswith("postgresql://"):
        server, name = _split(database)
        root, template = _made_on(server)
        testing._write_tree(root, place)
        copied = f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"
        run_sql(server, f"DROP DATABASE {name}", copied)
    else:
        testing.new_root(place)
        if database:
            (place / "ledger.db").rename(database)
    if toml:
        with (place / "remit.toml").open("a", encoding="utf-8") as file:
            file.write(toml)
    return place


@functools.cache
def _made_on(server: str) -> tuple[testing._Tree, str]:
    """A root whose ledger is on a server, and the name of its database."""
    name = f"root{os.getpid()}"
    run_sql(server, f"CREATE DATABASE {name}")
    path = urlsplit(server).path
    with tempfile.TemporaryDirectory(prefix="remit-root-") as directory:
        root = _make(Path(directory, "root"), server.replace(f"{path}?", f"/{name}?"))
        return testing._read_tree(root), name


def _split(url: str) -> tuple[str, str]:
    """The URL of a database that every server has, and a database's name."""
    name = urlsplit(url).path
    return url.replace(f"{name}?", "/postgres?"), name[1:]


def _make(place: Path, database: str) -> Path:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REMIT_")}
    with mock.patch.dict(os.environ, kept, clear=True):
        make_root(Root(place), flags={"ledger.path": database})
    return place
