"""Classify the rows of a CSV under a contract, eight at a time, within one budget.

    python batch_csv.py tickets.csv --out classified.csv --usd 0.05

If you kill the program, `--session SES-…` resumes the batch: answers of finished rows are read from
the ledger, without another call. If the budget ends, the program lists the remaining rows.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import sys
from pathlib import Path

from remit import RemitError, Runtime
from remit.agents.workorders import WorkOrder
from remit.runtime import Conversation

HERE = Path(__file__).parent  # contracts/PRC-TRIAGE-001.json, prompt_packs/PRM-TRIAGE-001.txt
AT_ONCE = 8


async def batch(session: Conversation, rows: list[dict[str, str]]) -> dict[str, WorkOrder]:
    """Return the order of each row, by id; after the budget ends, no further row starts."""
    orders: dict[str, WorkOrder] = {}
    waiting, spent = iter(rows), False

    async def work() -> None:
        nonlocal spent
        while not spent and (row := next(waiting, None)) is not None:
            # The answer of a finished row is read from the ledger; a failed row runs again.
            order = await session.awork({"text": row["text"]}, key=row["id"], retry_failed=True)
            orders[row["id"]] = order
            spent = spent or (order.error or {}).get("code") == "budget_exhausted"

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return orders


async def main() -> None:
    """Classify the rows, write the answers, and print the remaining rows."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("rows", nargs="?", type=Path, default=HERE / "tickets.csv")
    options.add_argument("--out", type=Path, default=Path("classified.csv"))
    options.add_argument("--usd", type=float, help="limit of the batch in US dollars")
    options.add_argument("--tokens", type=int, help="limit of the batch in tokens")
    options.add_argument("--session", help="resume the batch of this session")
    options.add_argument("--root", help="root (default: the nearest .remit; created if missing)")
    options.add_argument("--model", help="anthropic, openai, local, or the name of a model")
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
    try:
        asyncio.run(main())
    except RemitError as error:
        sys.exit(str(error))
