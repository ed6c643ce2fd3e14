"""A support agent that looks up orders, and refunds an order only if a person approves the refund.

    python support_agent.py "Order 1002 came broken, I want my money back."

The program waits for the approval. In another terminal, in the same directory, `remit approve`
lists the waiting refund; `remit approve LED-…` approves it and `remit approve LED-… --deny` denies
it. If you kill the program, `--session SES-…` resumes the session, and no refund is made twice.
`remit trace SES-…` shows every step.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from remit import RemitError, Runtime, tool
from remit.agents.tools import ToolError, current_call

POLL_S = 0.5  # seconds between polls
SHOP = Path("shop.db")
TABLES = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, paid_usd REAL, state TEXT);
CREATE TABLE refunds (key TEXT PRIMARY KEY, order_id INTEGER, reason TEXT);
INSERT INTO orders VALUES (1001, 'kettle', 39.9, 'on its way'), (1002, 'teapot', 24.5, 'delivered');
"""


@tool(examples=[("where is order 1001?", {"order_id": 1001})], on_unknown="retry")
def look_up_order(order_id: int) -> dict[str, object]:
    """Return the item, the price and the state of an order."""
    with closing(sqlite3.connect(SHOP)) as shop:
        found = shop.execute("SELECT item, paid_usd, state FROM orders WHERE id = ?", [order_id])
        if (row := found.fetchone()) is None:
            raise ToolError(f"The order {order_id} does not exist.")  # the model reads this
        return dict(zip(("item", "paid_usd", "state"), row, strict=True))


@tool(on_unknown="retry")  # the key makes a repetition after a crash harmless
def refund(order_id: int, reason: str) -> str:
    """Pay back the whole price of an order."""
    call = current_call()
    assert call is not None, "only agents call this"
    with closing(sqlite3.connect(SHOP)) as shop, shop:
        row = (call.idempotency_key, order_id, reason)
        shop.execute("INSERT OR IGNORE INTO refunds VALUES (?, ?, ?)", row)
    return f"Order {order_id} is refunded."


def main() -> None:
    """Run one turn, wait for a person's decision if the agent needs one, and print the answer."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("message", nargs="?", default="Where is order 1001?")
    options.add_argument("--root", help="root (default: the nearest .remit; created if missing)")
    options.add_argument("--model", help="anthropic, openai, local, or the name of a model")
    options.add_argument("--session", help="resume this session")
    given = options.parse_args()
    if not SHOP.exists():
        with closing(sqlite3.connect(SHOP)) as shop:
            shop.executescript(TABLES)

    with Runtime.open(given.root, model=given.model, create=True) as runtime:
        runtime.require_model()
        agent = runtime.agent(
            "support",
            instructions="You serve the customers of a tea shop. Look an order up before you "
            "speak of it. Refund what arrived broken.",
            tools=[look_up_order, refund],
            approve=["refund"],
        )
        session = agent.session(given.session)
        print(f"session {session.session_id}", flush=True)
        result = session.resume() if session.unfinished() else session.turn(given.message)
        while result is not None and result.waiting:
            for call in result.waiting_for:
                what = f"{call.tool_id} {dict(call.arguments)}"
                print(f"remit approve {call.request_id}   # waiting: {what}", flush=True)
            while runtime.approvals.pending(session_id=session.session_id):
                time.sleep(POLL_S)
            result = session.resume()
        print(result.response if result else "Another program has ended the turn.")
        session.end()
    print(f"remit trace {session.session_id} shows every step.")


if __name__ == "__main__":
    try:
        main()
    except RemitError as error:
        sys.exit(str(error))
