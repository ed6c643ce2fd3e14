"""DSPy: predictors over both providers."""

from __future__ import annotations

from typing import Any

import dspy
import pytest

from tests.clients.conftest import Side

MODELS = ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"]


def _lm(side: Side, model: str) -> dspy.LM:
    base = side.url if model.startswith("anthropic") else f"{side.url}/v1"
    return dspy.LM(model, api_base=base, api_key=side.key, cache=False, num_retries=0)


@pytest.mark.parametrize("model", MODELS)
def test_predict(side: Side, model: str) -> Any:
    with dspy.context(lm=_lm(side, model)):
        found = dspy.Predict("question -> answer")(question="What is it?")
    assert found.answer == "forty-two"
    return found.answer


@pytest.mark.parametrize("model", MODELS)
def test_chain_of_thought(side: Side, model: str) -> Any:
    with dspy.context(lm=_lm(side, model)):
        found = dspy.ChainOfThought("question -> answer")(question="What is it?")
    return [found.reasoning, found.answer]


def test_responses(side: Side) -> Any:
    lm = dspy.LM("openai/gpt-4o-mini", model_type="responses", api_base=f"{side.url}/v1",
                 api_key=side.key, cache=False, num_retries=0)  # fmt: skip
    with dspy.context(lm=lm):
        return dspy.Predict("question -> answer")(question="What is it?").answer
