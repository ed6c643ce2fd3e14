"""A budget that is no number would hold against nothing: it is refused before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import run_blocking
from remit.learning.routes import calibrate
from remit.providers.prices import PriceTable
from tests.learning.conftest import CONTRACT
from tests.support.commands import run_remit
from tests.support.scripted import Scripted


@pytest.mark.parametrize("usd", ["nan", "inf", "-inf", "-1", "1e400"])
def test_over_the_command_line(answered: Path, provider: Scripted, usd: str) -> None:
    provider.bodies.clear()
    at = ("--root", answered)
    for command in (
        ("learn", "prompt", CONTRACT, "--usd", usd, *at),
        ("learn", "replay", "--contract", CONTRACT, "--model", "gpt-4o", "--usd", usd, *at),
        ("learn", "judge", "--contract", CONTRACT, "--usd", usd, *at),
        ("learn", "judge", "--width", usd, *at),
        ("route", "calibrate", "--usd", usd, *at),
        ("route", "fit", "--usd-per-call", usd, *at),
        ("route", "fit", "--usd-per-call", 1, "--quality-floor", usd, *at),
    ):
        done = run_remit(*command)
        assert (done.returncode, "the range" in done.stderr) == (2, True), (command, done.stderr)
    assert provider.bodies == []


@pytest.mark.parametrize("usd", [float("nan"), float("inf"), -1.0])
def test_in_python(usd: float) -> None:
    with pytest.raises(InvalidInputError, match="not a budget"):
        run_blocking(
            calibrate(
                None, None, [], [], lambda *_: 0.0,  # type: ignore[arg-type]
                usd=usd, prices=PriceTable.shipped(), by="test",
            )
        )  # fmt: skip
