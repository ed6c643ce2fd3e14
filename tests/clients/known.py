"""What does not pass through Remit yet, read from ``known.txt`` beside this file.

A line in brackets is a reason; the tests below it fail through Remit for that reason. A test that
is listed must fail: whoever makes it pass takes it out.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["KNOWN"]


def _read() -> dict[str, str]:
    reasons, reason = {}, ""
    for line in Path(__file__).with_name("known.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            reason = line.strip("[]")
        elif line and not line.startswith("#"):
            reasons[line] = reason
    return reasons


KNOWN = _read()
"""Reasons by the name of a test: folder, module and what pytest calls it."""
