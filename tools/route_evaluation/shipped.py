"""The set that comes with the tool, and what is stated of its models (``data/ORIGIN.md``)."""

from __future__ import annotations

from pathlib import Path

__all__ = ["CANDIDATES", "DATA", "REPORT"]

DATA = Path(__file__).parent / "data"
REPORT = DATA / "report.jsonl"
CANDIDATES = DATA / "candidates.toml"
