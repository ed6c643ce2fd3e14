"""What a great ledger takes on disk, by table, and what moving half of it to a segment costs.

    python -m benchmarks.growth [ENTRIES] [POSTGRESQL-URL]

The root of :mod:`benchmarks.console` is copied; with a URL its ledger is first moved there.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.console.root import grown
from benchmarks.gateways.progress import tell
from remit.gateway.leases import LeaseManager
from remit.kernel.root import Root
from remit.kernel.settings import default_settings, load_settings
from remit.ledger import LedgerClient, copy_ledger, open_root_ledger
from remit.ledger.segments import cut_at, move_to_segment
from remit.runtime.state_tables import carried_state, check_state, rebuild_state

_HOME = Path("/tmp/bench_growth")
_JOBS = 2


def main(entries: int = 1_000_000, url: str = "") -> None:
    """Measure, and print JSON."""
    place = _HOME / "root"
    shutil.rmtree(_HOME, ignore_errors=True)
    shutil.copytree(grown(entries).root, place)
    root = Root(place)
    settings = load_settings(root.path / "remit.toml").settings.ledger
    if url:
        with (
            open_root_ledger(root, settings, signing=True) as source,
            LedgerClient(url, settings=settings, verifier_key=source.verifier_key) as target,
            _timed("copy"),
        ):
            copy_ledger(source, target, _HOME / "all.jsonl")
        (_HOME / "all.jsonl").unlink()
        (place / "ledger.db").unlink()
        with (place / "remit.toml").open("a") as file:
            file.write(f'\n[ledger]\npath = "{url}"\n')
        settings = load_settings(root.path / "remit.toml").settings.ledger
    with open_root_ledger(root, settings, signing=True, checks=(check_state,)) as ledger:
        rebuild_state(ledger)  # sessions of that root are copies, without rows of their own
        found: dict[str, Any] = {"before": _sizes(ledger, url)}
        directory = _HOME / "segments"
        with LeaseManager(ledger, default_settings().leases).hold_blocking("archive") as lease:
            done = move_to_segment(
                ledger, cut_at(ledger, str(entries * 9 // 10)), directory, by="benchmark",
                carry=carried_state, guard=lease.require_in, jobs=_JOBS,
            )  # fmt: skip
        found |= {"segment": {name: getattr(done, name) for name in done.__slots__}}
        found["after"] = _sizes(ledger, url)
        found["segment_bytes"] = Path(done.directory).stat().st_size
        with _timed("verify after"):
            report = ledger.verify(jobs=_JOBS)
            assert report.verified, report.problems
        ledger.attach([directory])
        with _timed("verify with the segment"):
            assert ledger.verify(jobs=_JOBS).verified
    print(json.dumps(found, indent=1))


class _timed:  # noqa: N801
    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        tell(f"{self._what}: {time.perf_counter() - self._start:.1f} s")


def _sizes(ledger: LedgerClient, url: str) -> dict[str, int]:
    """Bytes by table, its indexes included, and of all."""
    found = dict(_of_postgres(ledger) if url else _of_sqlite(ledger))
    return {**dict(sorted(found.items(), key=lambda item: -item[1])), "all": sum(found.values())}


def _of_postgres(ledger: LedgerClient) -> Iterator[tuple[str, int]]:
    for name, size in ledger.select(
        "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' "
        "AND relnamespace = current_schema()::regnamespace"
    ):
        yield str(name), int(size)


def _of_sqlite(ledger: LedgerClient) -> Iterator[tuple[str, int]]:
    with sqlite3.connect(f"file:{ledger.location}?mode=ro", uri=True) as connection:
        yield from connection.execute(
            "SELECT s.tbl_name, sum(d.pgsize) FROM dbstat AS d JOIN sqlite_schema AS s "
            "ON s.name = d.name GROUP BY s.tbl_name"
        )
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        yield "free", free * connection.execute("PRAGMA page_size").fetchone()[0]


if __name__ == "__main__":
    main(*(int(one) if one.isdecimal() else one for one in sys.argv[1:]))  # type: ignore[arg-type]
