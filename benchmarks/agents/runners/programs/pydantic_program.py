from pathlib import Path

from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessagesTypeAdapter,
    Tool,
    UsageLimits,
)

STATE = Path("state.json")


class Answer(BaseModel):
    text: str
    refunded: bool


def look_up_order(order_id: int) -> str:
    """What was ordered, and in which state it arrived."""
    return f"order {order_id}: a teapot, broken"


def refund(order_id: int) -> str:
    """Pay back an order."""
    return f"order {order_id} is refunded"


agent = Agent(
    "openai-chat:gpt-4o-mini",
    instructions="Look orders up. Refund what arrived broken.",
    tools=[look_up_order, Tool(refund, requires_approval=True)],
    output_type=[Answer, DeferredToolRequests],
)
limits = UsageLimits(total_tokens_limit=20_000)
if STATE.exists():
    history = ModelMessagesTypeAdapter.validate_json(STATE.read_bytes())
    result = agent.run_sync(message_history=history, usage_limits=limits)
else:
    result = agent.run_sync(input("Message: "), usage_limits=limits)
while isinstance(result.output, DeferredToolRequests):
    STATE.write_bytes(result.all_messages_json())
    decided = DeferredToolResults()
    for call in result.output.approvals:
        decided.approvals[call.tool_call_id] = input(f"{call.tool_name} {call.args}? ") == "yes"
    result = agent.run_sync(
        message_history=result.all_messages(), deferred_tool_results=decided, usage_limits=limits
    )
STATE.unlink(missing_ok=True)
print(result.output)
