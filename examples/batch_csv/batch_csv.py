"""Rows of a CSV, classified under a contract of their own, eight at once, within one budget.

    python batch_csv.py tickets.csv --out classified.csv --usd 0.05

Killed in the middle, it goes on with `--session SES-…`: rows that have an answer are read back
from the ledger and not asked again. When the budget ends it says which rows are left.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
from pathlib import Path

from remit import Runtime
from remit.agents.workorders import WorkOrder
from remit.runtime import Conversation

HERE = Path(__file__).parent  # contracts/PRC-TRIAGE-001.json, prompt_packs/PRM-TRIAGE-001.txt
AT_ONCE = 8


async def batch(session: Conversation, rows: list[dict[str, str]]) -> dict[str, WorkOrder]:
    """The order of each row that was begun; none is begun once the budget has ended."""
    orders: dict[str, WorkOrder] = {}
    waiting, spent = iter(rows), False

    async def work() -> None:
        nonlocal spent
        while not spent and (row := next(waiting, None)) is not None:
            # A row with an answer is read back, one that failed before is tried anew.
            order = await session.awork({"text": row["text"]}, key=row["id"], retry_failed=True)
            orders[row["id"]] = order
            spent = spent or (order.error or {}).get("code") == "budget_exhausted"

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return orders


async def main() -> None:
    """Classify, write what there is, say what is left."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("rows", nargs="?", type=Path, default=HERE / "tickets.csv")
    options.add_argument("--out", type=Path, default=Path("classified.csv"))
    options.add_argument("--usd", type=float, help="most US dollars of the whole batch")
    options.add_argument("--tokens", type=int, help="most tokens of the whole batch")
    options.add_argument("--session", help="go on with this batch")
    options.add_argument("--root", help="default: the nearest .remit, made when there is none")
    options.add_argument("--model", help="'anthropic', 'openai', 'local', or a model's name")
    given = options.parse_args()
    with given.rows.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    async with Runtime.open(given.root, model=given.model, create=True) as runtime:
        runtime.require_model()
        agent = runtime.agent("triage", contract="PRC-TRIAGE-001", contracts=HERE)
        limits = {} if given.session else {"usd": given.usd, "tokens": given.tokens}
        session = agent.session(given.session, **limits)
        print(f"session {session.session_id}", flush=True)
        orders = await batch(session, rows)
        used = session.cost()
        session.end()

    done = {row: order.output_result for row, order in orders.items() if order.output_result}
    with given.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["id", "topic", "urgent"])
        writer.writeheader()
        writer.writerows({"id": row["id"], **done[row["id"]]} for row in rows if row["id"] in done)
    for row, order in orders.items():
        if order.error is not None:
            print(f"row {row}: {order.error['code']}: {order.error['message']}")
    left = [row["id"] for row in rows if row["id"] not in done]
    print(f"{len(done)} of {len(rows)} rows, {used}; left: {', '.join(left) or 'none'}")


if __name__ == "__main__":
    asyncio.run(main())
