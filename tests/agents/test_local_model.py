"""The real local model, end to end. Skipped, with the reason, where it is not installed."""

from __future__ import annotations

import importlib.util

import pytest

from remit.kernel.errors import RemitError
from remit.kernel.json_text import dump
from remit.kernel.settings import default_settings
from remit.providers import Body, LocalProvider, ProviderError, Timeouts
from remit.providers.weights import WeightStore
from remit.providers.wire import CHAT
from tests.support.local_model import ONE_THREAD
from tests.support.requests import provider_request

NAME = "smollm2-135m"


def _why_not() -> str:
    if importlib.util.find_spec("xllamacpp") is None:
        return "the extra 'local' is not installed"
    try:
        WeightStore().path(NAME)
    except RemitError as error:
        return str(error)
    return ""


WHY_NOT = _why_not()
pytestmark = [
    pytest.mark.local_model,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is here"),
]


@pytest.fixture(scope="module")
def provider() -> LocalProvider:
    store = WeightStore()
    settings = default_settings().local.model_copy(update={"threads": 1})
    return LocalProvider(store.path(NAME), NAME, settings, store.sha256(NAME))


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)


async def test_one_call_at_a_time_and_an_abandoned_one_stops(provider: LocalProvider) -> None:
    body = {
        "model": NAME, "messages": [{"role": "user", "content": "hi"}], "stream": True,
        "max_tokens": 3_000, "logit_bias": {"62": 100},  # the letter N until the end
    }  # fmt: skip
    asked = Body.read(CHAT, dump(body))
    outgoing = provider.outgoing(provider_request(model_id=NAME, body=asked))
    reply = await provider.send(outgoing, Timeouts(5, 300, 300))
    with pytest.raises(ProviderError) as caught:  # who waits in vain is told why
        await provider.send(outgoing, Timeouts(5, 0.01, 300))
    assert caught.value.code == "RATE_LIMITED"
    assert not caught.value.speaks_of_health
    await reply.aclose()
    assert len([event async for came in reply.events() for event in came]) < 1_500
