"""Answers of provider objects in neutral form count in the account of the process's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from remit.gateway import LLMGateway
from remit.gateway.memory import memory
from remit.kernel.exchange import TextDelta
from remit.ledger import LedgerClient
from remit.providers import MAX_BODY_BYTES, ProviderResponse
from tests.support.requests import prompt_request

pytestmark = pytest.mark.any_store

_MIB = 1024 * 1024
_PIECE = "x" * 64 * 1024


@pytest.fixture(autouse=True)
def _small_account() -> Iterator[None]:
    before, memory.limit = memory.limit, 16 * _MIB
    yield
    memory.limit = before
    assert memory.held == 0


class Endless:
    """Streams text until it is cancelled, or the bytes are sent."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent = 0

    async def astream(self, request: Any, on_event: Any) -> ProviderResponse:
        parts = []
        while self.sent < self.size:
            if on_event is not None:
                on_event(TextDelta(_PIECE))
            parts.append(_PIECE)
            self.sent += len(_PIECE)
            await asyncio.sleep(0)
        return ProviderResponse("".join(parts), "m", 1, 1, "stop")


class Whole:
    """Answers at once with so many bytes."""

    def __init__(self, size: int) -> None:
        self._size = size

    async def asend(self, request: Any, on_text: Any = None) -> ProviderResponse:
        return ProviderResponse("x" * self._size, "m", 1, 1, "stop")


@pytest.mark.parametrize("size", [_MIB // 2, 64 * _MIB])
async def test_a_stream_of_a_provider_object_is_ended_with_the_account(
    ledger: LedgerClient, size: int
) -> None:
    gateway, provider = LLMGateway(ledger, dev_mode=True), Endless(size)
    gateway.register_provider("mock", provider)
    response = await gateway.aroute(prompt_request(), sink=_Sink())
    if size < _MIB:
        assert response.error_code is None
        assert len(response.content) == size
    else:
        assert response.error_code == "SERVER_ERROR"
        assert "the largest and was cut off" in (response.error_message or "")
        assert provider.sent <= 4 * _MIB
        assert 0 < len(response.content) <= provider.sent
        entry = ledger.read(response.exchange_entry_id)
        assert entry.metadata["response"] == response.content


class _Sink:
    async def take(self, event: Any) -> None:
        await asyncio.sleep(0)

    def pass_on(self, raw: bytes) -> bool:
        return False

    def release(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("size", "said"), [(2 * _MIB, ""), (8 * _MIB, "was cut off"), (MAX_BODY_BYTES + 1, "is longer")]
)
async def test_a_whole_answer_of_a_provider_object_is_bounded(
    ledger: LedgerClient, size: int, said: str
) -> None:
    gateway = LLMGateway(ledger, dev_mode=True)
    gateway.register_provider("mock", Whole(size))
    response = await gateway.aroute(prompt_request())
    assert (response.error_code or "") == ("SERVER_ERROR" if said else "")
    assert said in (response.error_message or "")
    assert said or len(response.content) == size
