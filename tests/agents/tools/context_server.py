"""An MCP server of the SDK with resources, prompts, progress and questions to the person."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

server = MCPServer("context")


class Answer(BaseModel):
    """What a person would fill in."""

    colour: str


@server.resource("notes://today")
def today() -> str:
    """What is noted for today."""
    return "Buy tea."


@server.resource("notes://{day}/all")
def day(day: str) -> str:
    """The notes of a day."""
    return f"Nothing on {day}."


@server.prompt()
def summary(topic: str) -> str:
    """Sum something up."""
    return f"Sum up {topic} in one line."


@server.tool()
async def count(ctx: Context[Any, Any], steps: int = 3) -> str:
    """Count, and say how far it is."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
    return f"counted to {steps}"


def colour() -> Elicit[Answer]:
    """Asks the person, as the protocol's version has it."""
    return Elicit("Which colour?", Answer)


@server.tool()
async def paint(answer: Annotated[ElicitationResult[Answer], Resolve(colour)]) -> str:
    """Ask for a colour, and paint."""
    return f"painted: {answer.action}"


@server.tool()
async def insist(answer: Annotated[Answer, Resolve(colour)]) -> str:
    """Ask for a colour, and do nothing without one."""
    return answer.colour


if __name__ == "__main__":
    server.run("stdio")
