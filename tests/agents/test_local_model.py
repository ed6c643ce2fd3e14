"""The real local model, end to end. Skipped, with the reason, where it is not installed."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from remit import Runtime
from remit.kernel.settings import default_settings
from remit.providers import LocalProvider, ProviderError
from remit.providers.weights import ModelError, WeightStore
from tests.support.requests import provider_request

NAME = "smollm2-135m"


def _why_not() -> str:
    if importlib.util.find_spec("xllamacpp") is None:
        return "the extra 'local' is not installed"
    try:
        WeightStore().path(NAME)
    except ModelError as error:
        return str(error)
    return ""


WHY_NOT = _why_not()
pytestmark = [
    pytest.mark.local_model,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is here"),
]


@pytest.fixture(scope="module")
def provider() -> LocalProvider:
    return LocalProvider(WeightStore().path(NAME), NAME, default_settings().local)


async def test_it_answers_and_counts(provider: LocalProvider) -> None:
    heard: list[str] = []
    answer = await provider.asend(
        provider_request(model_id=NAME, messages=({"role": "user", "content": "hello"},)),
        on_text=heard.append,
    )
    await asyncio.sleep(0.01)
    assert answer.content.strip()
    assert "".join(heard) == answer.content
    assert answer.model == NAME
    assert answer.input_tokens > 0
    assert answer.output_tokens > 0


async def test_a_prompt_that_is_too_long(provider: LocalProvider) -> None:
    long = ({"role": "user", "content": "word " * 9_000},)
    with pytest.raises(ProviderError) as caught:
        await provider.asend(provider_request(model_id=NAME, messages=long))
    assert caught.value.code == "CONTEXT_LENGTH"


async def test_another_models_name_is_refused(provider: LocalProvider) -> None:
    with pytest.raises(ProviderError) as caught:
        await provider.asend(provider_request(model_id="gpt-9"))
    assert caught.value.code == "INVALID_REQUEST"


async def test_who_goes_away_frees_the_model(provider: LocalProvider) -> None:
    story = ({"role": "user", "content": "Tell a very long story about a ship."},)
    task = asyncio.create_task(
        provider.asend(provider_request(model_id=NAME, messages=story, max_tokens=3_000))
    )
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    answer = await asyncio.wait_for(provider.asend(provider_request(model_id=NAME)), 60)
    assert answer.content


def test_a_conversation_through_every_layer(tmp_path: Path) -> None:
    with Runtime.open(tmp_path / "root", create=True, model="local") as runtime:
        runtime.require_model()
        with runtime.session() as conversation:
            greeting = conversation.turn("hello")
            listing = conversation.turn("list the sessions")
        calls = runtime.ledger.read_by_event_type("TOOL_CALL")
        counts = runtime.ledger.count_by_event()
        report = runtime.ledger.verify()
    assert greeting.quality_gate_passed
    assert any(word in greeting.response.lower() for word in ("hello", "hi", "hey", "welcome"))
    assert not greeting.tool_results
    assert listing.quality_gate_passed
    (call,) = calls
    assert call.metadata["tool_id"] == "list_sessions"  # a choice held to a schema
    assert call.metadata["result"]["sessions"][0]["session_id"] == conversation.session_id
    assert counts["DISPATCH"] == counts["EXCHANGE"]
    assert report.verified, report.problems


def test_a_process_that_ends_while_the_model_works_ends_cleanly(tmp_path: Path) -> None:
    script = """
import sys, threading, time
from remit import Runtime
runtime = Runtime.open(sys.argv[1], create=True, model="local")
conversation = runtime.session()
threading.Thread(target=lambda: conversation.turn("tell me a long story"), daemon=True).start()
time.sleep(1.5)
"""
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "root")],
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
