"""Packages and gates, each against reading and hashing the same bytes.

The great root has 200 packages and a million entries; it is built once, gates looked through once,
and then every round looks through all of them again, and installs one package more.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from benchmarks.rounds import ROUNDS, alternate, new_directory
from benchmarks.table import Comparison, Figure
from remit.kernel.canonical import sha256_hex
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerClient, LedgerEntry, open_root_ledger
from remit.packages import IncomingArchive, InstalledPackage, pack
from remit.packages.distribution import Distribution
from remit.packages.gates import check_gates
from remit.runtime import make_root, package_manager
from remit.runtime.installation import gate_context

PACKAGES = 200
ENTRIES = 1_000_000
AT_ONCE = 2_000
FILES = 4


def compare(scratch: Path) -> Iterator[Comparison | Figure]:
    """A new root; all gates on it; the same on a great one, and one package more."""
    shipped = Path(str(resources.files("remit").joinpath("assets/packages")))
    floor, ours = alternate(scratch, lambda _: hashing(files_of(shipped)), making)
    yield Comparison("init with all packages", floor, ours)
    root = Root(new_directory(scratch) / "root")
    make_root(root)
    with _ledger(root) as ledger:
        yield _gates("gate check --all, new root", root, ledger)
    yield Figure("building the great root", [_grow(root, scratch) / 1000], "s")
    with _ledger(root) as ledger:
        yield Figure("gate check --all --full, great root", [_check(root, ledger, full=True)], "ms")
        yield _gates("gate check --all, great root", root, ledger)
        floor, ours = [], []
        for number in range(ROUNDS + 1):
            data = archive(new_directory(scratch), PACKAGES + number)
            floor.append(hashing(governed(root)) + _timed(data))
            ours.append(install(root, ledger, data))
        yield Comparison("install of one package, great root", floor[1:], ours[1:])


def making(directory: Path) -> float:
    """Milliseconds of a new root with everything that ships."""
    started = time.perf_counter()
    make_root(Root(directory / "root"))
    return 1000 * (time.perf_counter() - started)


def install(root: Root, ledger: LedgerClient, data: bytes) -> float:
    """Milliseconds of the install of one archive."""
    manager = package_manager(root, ledger, load_settings(root.config), by="benchmark")
    started = time.perf_counter()
    installed: list[InstalledPackage] = manager.install(
        [IncomingArchive(data)], dev=True, approve=True
    )
    taken = 1000 * (time.perf_counter() - started)
    assert len(installed) == 1
    return taken


def hashing(files: list[Path], ledger: LedgerClient | None = None) -> float:
    """Milliseconds of reading and hashing files, and every record of a ledger."""
    started = time.perf_counter()
    for file in files:
        hashlib.sha256(file.read_bytes()).digest()
    if ledger is not None:
        last, rows = -1, ledger.select("SELECT 0, ''")
        while rows:
            rows = ledger.select(
                "SELECT seq, record FROM entries WHERE seq > ? ORDER BY seq LIMIT 4096", (last,)
            )
            for seq, record in rows:
                last = seq
                hashlib.sha256(record.encode() if isinstance(record, str) else record).digest()
    return 1000 * (time.perf_counter() - started)


def governed(root: Root) -> list[Path]:
    """The files below the tier folders."""
    return [file for tier in ("hot", "ho2", "ho1") for file in files_of(root.tier(tier))]


def files_of(folder: Path) -> list[Path]:
    """All files below a folder."""
    return [file for file in folder.rglob("*") if file.is_file()]


def archive(directory: Path, number: int) -> bytes:
    """A package with a few texts that belong to nobody else."""
    files = {
        f"HO1/documents/{number}/{name}.md": f"Text {name} of {number}.\n".encode() * 40
        for name in range(FILES)
    }
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    manifest = {
        "package_id": f"PKG-BENCHMARK-{number}-001",
        "version": "1.0.0",
        "schema_version": "1.0",
        "title": "For a benchmark",
        "package_type": "agent",
        "spec_id": "SPEC-AGENT-001",
        "framework_id": "FMWK-AGENT-001",
        "plane_id": "ho2",
        "layer": 9,
        "dependencies": [],
        "permissions": {},
        "assets": [
            {
                "path": path,
                "sha256": f"sha256:{sha256_hex(data)}",
                "classification": "document",
            }
            for path, data in files.items()
        ],
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return pack(directory)


def _grow(root: Root, scratch: Path) -> float:
    started = time.perf_counter()
    with _ledger(root) as ledger:
        manager = package_manager(root, ledger, load_settings(root.config), by="benchmark")
        there = len(manager.registry().packages)
        incoming = [
            IncomingArchive(archive(new_directory(scratch), n)) for n in range(there, PACKAGES)
        ]
        manager.install(incoming, dev=True, approve=True)
        for first in range(ledger.count(), ENTRIES, AT_ONCE):
            count = min(AT_ONCE, ENTRIES - first)
            ledger.write_many([_note(first + number) for number in range(count)])
    return 1000 * (time.perf_counter() - started)


def _note(number: int) -> LedgerEntry:
    return LedgerEntry(
        event_type="NOTE",
        submission_id=f"WO-SES-BENCHMARK-{number % 1000:03d}",
        decision="NOTED",
        reason="A line of some length, as entries have them in use",
        metadata={"number": number, "session_id": f"SES-{number // 1000:08d}", "agent_id": "b"},
    )


def _gates(name: str, root: Root, ledger: LedgerClient) -> Comparison:
    code = list(Distribution.current().modules().values())
    floor, ours = [], []
    for _ in range(ROUNDS + 1):
        floor.append(hashing([*governed(root), *code], ledger))
        ours.append(_check(root, ledger))
    return Comparison(name, floor[1:], ours[1:])


def _check(root: Root, ledger: LedgerClient, *, full: bool = False) -> float:
    started = time.perf_counter()
    context = gate_context(root, ledger, load_settings(root.config))
    report = check_gates(context, full=full, by="benchmark")
    assert report.passed, report
    return 1000 * (time.perf_counter() - started)


def _timed(data: bytes) -> float:
    started = time.perf_counter()
    hashlib.sha256(data).digest()
    return 1000 * (time.perf_counter() - started)


def _ledger(root: Root) -> LedgerClient:
    return open_root_ledger(root, load_settings(root.config).settings.ledger)
