"""Fixtures that every part uses. Nothing here replaces a real part by a pretended one."""

from __future__ import annotations

import gc
import logging
import multiprocessing.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from tests.support.compiled import compile_modules
from tests.support.postgres import PostgresServer
from tests.support.soak import is_soak

from remit.kernel.loops import run_blocking
from remit.ledger import LedgerClient
from remit.providers.upstream_http import HttpUpstream

# Processes that tests start, and the next run, find the modules compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("COLUMNS", None)  # Workers of xdist have it; commands would wrap their lines.
sys.dont_write_bytecode = False

# Temporary files are in memory where 6 GiB of it are free: each fsync of a disk takes milliseconds.
# The directory is this run's own: each pytest that starts shuts other users, as whom PostgreSQL
# runs, out of the directory that all runs share.
_MEMORY = Path("/dev/shm")
_OWN_DIRECTORY = ""
if "TMPDIR" not in os.environ:
    place = None
    if os.access(_MEMORY, os.W_OK):
        available = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
        free = min(shutil.disk_usage(_MEMORY).free, int(available[1]) << 10 if available else 0)
        place = _MEMORY if free > 6 << 30 else None
    _OWN_DIRECTORY = tempfile.mkdtemp(prefix="t", dir=place)
    os.environ["TMPDIR"] = tempfile.tempdir = _OWN_DIRECTORY


def _remove_own_directory() -> None:
    """Remove the run's directory of temporary files unless it holds those of a failed test."""
    if not any(Path(_OWN_DIRECTORY).glob("pytest-of-*/pytest-*/*/*")):
        shutil.rmtree(_OWN_DIRECTORY, ignore_errors=True)


if _OWN_DIRECTORY:
    # After the finalizer of multiprocessing's own directory (-100), which is inside.
    multiprocessing.util.Finalize(None, _remove_own_directory, exitpriority=-200)

# How long an example takes says how busy the machine is, and nothing about the code. Each run
# draws other examples; a soak draws twice as many.
hypothesis.settings.register_profile(
    "remit",
    deadline=None,
    max_examples=100 if is_soak() else 50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("remit")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes have no part in a test's name: they may tell the time, and each worker has its own."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Compile the modules before the workers start."""
    compile_modules(config.rootpath)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tests and what they import stay until the end: the collector need not look at them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a test marked ``any_store`` on SQLite alone, and tests with a long time limit first.

    Started last, a long test would run alone while the other workers have ended.
    """
    items[:] = [
        item
        for item in items
        if item.get_closest_marker("any_store") is None or "postgresql" not in item.name
    ]
    limit = float(items[0].config.getini("timeout")) if items else 0
    items.sort(key=lambda item: _time_limit(item) <= limit)


def _time_limit(item: pytest.Item) -> float:
    """Return the time limit that a test states for itself, in seconds; 0 if it states none."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker else 0


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and roots of whoever runs the tests are none of the tests' business."""
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "REMIT_ROOT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _no_key(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "live" not in request.keywords:
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


@pytest.fixture(autouse=True)
def _same_levels() -> Iterator[None]:
    """Fail a test that changes log levels: later tests in the process would miss records."""
    before = logging.root.level, logging.getLogger("remit").level
    yield
    assert (logging.root.level, logging.getLogger("remit").level) == before


@pytest.fixture(autouse=True)
def _close_connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test left open: a connection found by the garbage collector is an error."""
    clients: list[HttpUpstream] = []
    make = HttpUpstream.__init__

    def noted(self: Any, *arguments: object, **more: object) -> None:
        make(self, *arguments, **more)  # type: ignore[arg-type]
        clients.append(self)

    monkeypatch.setattr(HttpUpstream, "__init__", noted)
    yield
    for client in clients:
        run_blocking(client.aclose())


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests that do not harm it.

    Not below pytest's own directory: the server is another user, and each pytest that starts
    shuts everybody else out of there.
    """
    directory = Path(tempfile.mkdtemp(prefix="remit-postgres-"))
    server = PostgresServer(directory)
    yield server
    server.stop()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def new_ledger(postgres: PostgresServer) -> str:
    """A new ledger on PostgreSQL with nothing in it: to be copied, which is quicker than made."""
    url = postgres.database()
    LedgerClient(url).close()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a new ledger may be made: a test that asks for it runs on both stores."""
    if request.param == "sqlite":
        yield str(tmp_path / "ledger.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    template = [request.getfixturevalue("new_ledger")] if "ledger" in request.fixturenames else []
    url = server.database(*template)
    yield url
    server.drop(url)


@pytest.fixture
def ledger(target: str) -> Iterator[LedgerClient]:
    """A new ledger, on both stores."""
    with LedgerClient(target) as client:
        yield client


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A new ledger's address and the directory of all its files, to search them:
    on both stores."""
    if request.param == "sqlite":
        (tmp_path / "data").mkdir()
        yield str(tmp_path / "data" / "ledger.db"), tmp_path / "data"
        return
    server = PostgresServer(tmp_path / "data")
    yield server.database(), server.data
    server.stop()
