"""Turns of an agent, run by an earlier version: ``python turns.py ROOT`` with its Python.

The agent's tool ``stock`` runs at once; its tool ``refund`` waits for an approval.
"""

from __future__ import annotations

import sys

from remit import Runtime


def stock(tea: str) -> int:
    """Return the number of packets in stock.

    Args:
        tea: its name.
    """
    return len(tea)


def refund(order: int) -> str:
    """Refund an order.

    Args:
        order: its number.
    """
    return f"refunded {order}"


with Runtime.open(sys.argv[1]) as runtime:
    agent = runtime.agent("clerk", tools=[stock, refund], approve=["refund"], model="openai")
    with agent.session() as session:
        session.turn('Please call stock {"tea": "oolong"} for me.')
        session.turn("Thank you.")
        print(session.session_id)
    with agent.session() as session:
        result = session.turn('Please call refund {"order": 12} for me.')
        (request,) = result.waiting_for
        print(session.session_id)
        print(request.request_id)
