"""The prototype's sequencer: gives pending entries their places; for the benchmark only.

    python -m benchmarks.cluster.sequencer URL

It takes up to 256 pending entries in the order of their numbers, and appends them with Remit's own
code, in the transaction that removes them from ``pending``: sequence, hashes, content, tree, usage.
After a full batch it goes on at once, else 50 ms after it began the last. A line on its standard
input, and it ends when nothing is pending.
"""

from __future__ import annotations

import pickle
import select
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.cluster.inside import Batches
from benchmarks.cluster.programs import give, wait_to_go
from remit.kernel.settings import default_settings
from remit.ledger import Transaction
from remit.ledger.postgres import PostgresStore
from remit.ledger.store import Unit

MOST, EVERY_S = 256, 0.05
_NEXT = (
    "SELECT id, payload, CAST(extract(epoch FROM at) * 1000000 AS bigint) FROM pending "
    f"ORDER BY id LIMIT {MOST}"
)
_DONE = "DELETE FROM pending WHERE id = ANY(?::bigint[])"


class _Taken:
    """The stage that removes what is appended beside it."""

    def __init__(self, tx: Transaction, _: Sequence[Any]) -> None:
        self._tx = tx
        self._ids: list[int] = []

    def do(self, step: list[int]) -> None:
        """Note them."""
        self._ids += step

    def write(self) -> None:
        """With the rest of the batch, without waiting."""
        if self._ids:
            self._tx.execute_many(_DONE, [("{" + ",".join(map(str, self._ids)) + "}",)])
            self._ids = []


def main() -> None:
    """Until told to stop, and nothing is left."""
    settings = default_settings().ledger
    batches = Batches().watch()
    store = PostgresStore(
        sys.argv[1], content_keys=frozenset(settings.content_keys),
        lock_timeout_s=settings.lock_timeout_s, create=False,
    )  # fmt: skip
    cpu = wait_to_go()
    late: list[tuple[float, float]] = []  # when committed, ms since it was durable
    stopping = False
    while True:
        begun = time.monotonic()
        stopping = stopping or bool(select.select([sys.stdin], [], [], 0)[0])
        rows = store.select(_NEXT)
        if rows:
            units = [Unit(prepared=(pickle.loads(payload),)) for _, payload, _ in rows]
            units.append(Unit(step=[number for number, _, _ in rows], opener=_Taken))
            for result in store.run(units):
                if isinstance(result, Exception):
                    raise result
            now = time.time()
            late += [(now, 1000 * now - at / 1000) for _, _, at in rows]
        elif stopping:
            break
        if len(rows) < MOST and not stopping:
            time.sleep(max(0.0, begun + EVERY_S - time.monotonic()))
    store.close()
    give({
        "late": late,
        "cpu_s": time.process_time() - cpu,
        "held": [asdict(one) for one in batches.held],
    })  # fmt: skip


if __name__ == "__main__":
    main()
