import asyncio
from pathlib import Path

from pydantic import BaseModel

from agents import Agent, Runner, RunState, function_tool

STATE = Path("state.json")


class Answer(BaseModel):
    text: str
    refunded: bool


@function_tool
def look_up_order(order_id: int) -> str:
    """What was ordered, and in which state it arrived."""
    return f"order {order_id}: a teapot, broken"


@function_tool(needs_approval=True)
def refund(order_id: int) -> str:
    """Pay back an order."""
    return f"order {order_id} is refunded"


agent = Agent(
    name="support",
    instructions="Look orders up. Refund what arrived broken.",
    tools=[look_up_order, refund],
    output_type=Answer,
)
if STATE.exists():
    begin = asyncio.run(RunState.from_string(agent, STATE.read_text()))
else:
    begin = input("Message: ")
result = Runner.run_sync(agent, begin)
while result.interruptions:
    state = result.to_state()
    STATE.write_text(state.to_string())
    for item in result.interruptions:
        if input(f"{item.name} {item.arguments}? ") == "yes":
            state.approve(item)
        else:
            state.reject(item)
    result = Runner.run_sync(agent, state)
STATE.unlink(missing_ok=True)
print(result.final_output)
