from pydantic import BaseModel

from remit import Runtime


class Answer(BaseModel):
    text: str
    refunded: bool


def look_up_order(order_id: int) -> str:
    """What was ordered, and in which state it arrived."""
    return f"order {order_id}: a teapot, broken"


def refund(order_id: int) -> str:
    """Pay back an order."""
    return f"order {order_id} is refunded"


with Runtime.open(".remit", create=True) as runtime:
    agent = runtime.agent(
        "support",
        instructions="Look orders up. Refund what arrived broken.",
        tools=[look_up_order, refund],
        approve=["refund"],
        output_type=Answer,
        order_tokens=20_000,
    )
    session = agent.session(next(runtime.unfinished(), None))
    result = session.resume() or session.turn(input("Message: "))
    while calls := result.waiting_for:
        for call in calls:
            granted = input(f"{call.tool_id} {call.arguments}? ") == "yes"
            runtime.approvals.decide(call.request_id, granted=granted, by="Ada")
        result = session.resume() or result
    print(result.output)
