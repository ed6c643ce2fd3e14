"""A turn that fails says why in a code and in a detail, apart from what the customer reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.agents import anthropic_runtime
from tests.support.wire import message


def test_a_turn_that_is_answered_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anthropic_runtime(tmp_path / "r", monkeypatch, message("Three minutes.")) as (runtime, _):
        result = runtime.agent("guide").run("How long?")
    assert (result.failed, result.error_code, result.error_detail) == (False, "", "")


def test_a_rejected_answer_names_the_reasons_in_the_detail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anthropic_runtime(tmp_path / "r", monkeypatch, message("I think so.")) as (runtime, _):
        agent = runtime.agent("guide", acceptance={"must_contain": ["minutes"]}, max_retries=0)
        result = agent.run("How long?")
    assert result.failed
    assert result.error_code == "answer_rejected"
    assert "does not contain 'minutes'" in result.error_detail


def test_a_spent_budget_is_the_error_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        anthropic_runtime(tmp_path / "r", monkeypatch, message("Three.")) as (runtime, _),
        runtime.agent("guide").session(tokens=30) as session,
    ):
        result = session.turn("How long?")
    assert result.failed
    assert result.error_code == "budget_exhausted"
    assert result.error_detail
