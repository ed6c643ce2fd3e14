"""The loop that every peer does: its words, its tools and what they give back."""

from __future__ import annotations

from dataclasses import dataclass

MODEL = "gpt-4o-mini"
MARKER = "remit-benchmark-answer"
INSTRUCTIONS = "Answer briefly and plainly. Use a tool where the answer depends on it."
STEPS = 2


@dataclass(frozen=True)
class Scripted:
    """A tool as the upstream asks for it.

    Attributes:
        description: for the model.
        arguments: what it is called with.
        output: what it gives back.
    """

    description: str
    arguments: dict[str, str]
    output: str


TOOLS = {
    "find_city": Scripted(
        "Tells in which city somebody lives.", {"person": "Ada"}, "Ada lives in Brno."
    ),
    "find_weather": Scripted(
        "Tells the weather of a city.", {"city": "Brno"}, "In Brno there are 17 degrees."
    ),
}

runs = 0
"""How often a tool ran in this process."""


async def find_city(person: str) -> str:
    """Tells in which city somebody lives."""
    global runs
    runs += 1
    return f"{person} lives in Brno."


async def find_weather(city: str) -> str:
    """Tells the weather of a city."""
    global runs
    runs += 1
    return f"In {city} there are 17 degrees."


def question(number: int, steps: int = STEPS) -> str:
    """What the user says; no two alike."""
    return f"Question {number}: how is the weather where Ada lives? (steps={steps})"
