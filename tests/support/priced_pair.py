"""Two providers over real HTTP: a dear one that knows everything, and a cheap one that can add."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.commands import run_remit
from tests.support.roots import new_root
from tests.support.scripted import Scripted, scripted

__all__ = ["Pair", "priced_pair", "question", "right_answer"]

_ASKED = re.compile(r"(Add|Multiply) (\d+) (?:and|by) (\d+)")
_PRICES = {"dear": ("5", "15"), "cheap": ("0.1", "0.4")}


def question(number: int) -> str:
    """Return a sum for odd numbers, a product for even ones; no two are equal."""
    first, second = 2 + number * 7 % 89, 3 + number * 5 % 83
    if number % 2:
        return f"Add {first} and {second} for order {number}."
    return f"Multiply {first} by {second} for invoice {number}."


def right_answer(text: str) -> str:
    """Return the answer to a question of :func:`question`; the last one in the text counts."""
    word, first, second = _ASKED.findall(text)[-1]
    return str(int(first) + int(second) if word == "Add" else int(first) * int(second))


@dataclass
class Pair:
    """Both providers, and the settings of a root that uses them.

    Attributes:
        dear: answers every question right.
        cheap: answers sums right, and products with "7".
    """

    dear: Scripted
    cheap: Scripted

    @property
    def toml(self) -> str:
        providers = "".join(
            f'[providers.{name}co]\nkind = "openai"\napi_key = "sk-test"\n'
            f'base_url = "{one.url}/v1"\n[routing.models.{name}-1]\nprovider = "{name}co"\n'
            for name, one in (("dear", self.dear), ("cheap", self.cheap))
        )
        return (
            f'\n{providers}[model]\ndefault = "dearco/dear-1"\n'
            '[routing.routes.auto]\nmodels = ["dear-1", "cheap-1"]\n'
        )

    def root(self, place: Path, *, priced: bool = True) -> Path:
        """A root with both models, which no package permits."""
        new_root(place, self.toml)
        for name in _PRICES if priced else ():
            self.set_price(place, name)
        return place

    def set_price(self, place: Path, name: str, *usd: str) -> None:
        """Set the price of a model in US dollars for input and output, or its first price."""
        input_usd, output_usd = usd or _PRICES[name]
        done = run_remit(
            "price", "set", f"{name}-1", "--provider", f"{name}co", "--input", input_usd,
            "--output", output_usd, "--context-window", 100_000, "--max-output-tokens", 4096,
            "--root", place,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@contextmanager
def priced_pair() -> Iterator[Pair]:
    def asked(body: dict[str, Any]) -> str:
        return str(body["messages"][-1]["content"])

    with scripted() as dear, scripted() as cheap:
        dear.reply = lambda body: right_answer(asked(body))
        cheap.reply = lambda body: right_answer(asked(body)) if "Add" in asked(body) else "7"
        yield Pair(dear, cheap)
