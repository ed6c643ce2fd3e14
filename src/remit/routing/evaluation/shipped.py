"""What comes with Remit: the small set, its candidates, and how things are counted."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import IO

__all__ = ["Settings", "open_shipped_set", "settings", "shipped_text"]


@dataclass(frozen=True, slots=True)
class Settings:
    """``assets/evaluation/evaluation.toml``, which says what each value means."""

    z: float
    max_line_bytes: int
    progress_rows: int
    price_to_ability: tuple[float, ...]
    set_name: str
    candidates_name: str


@functools.cache
def settings() -> Settings:
    """The shipped settings."""
    read = tomllib.loads(shipped_text("evaluation.toml"))
    return Settings(
        z=float(read["z"]),
        max_line_bytes=int(read["max_line_bytes"]),
        progress_rows=int(read["progress_rows"]),
        price_to_ability=tuple(map(float, read["price_to_ability"])),
        set_name=read["shipped"]["set"],
        candidates_name=read["shipped"]["candidates"],
    )


def shipped_text(name: str) -> str:
    """One of the shipped files."""
    return resources.files("remit").joinpath("assets/evaluation", name).read_text("utf-8")


def open_shipped_set() -> IO[bytes]:
    """The shipped set, as JSON lines, open for reading."""
    file = resources.files("remit").joinpath("assets/evaluation", settings().set_name)
    return file.open("rb")
