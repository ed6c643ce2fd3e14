"""A call that failed leaves nothing in memory: no error holds what it was about.

The collector runs seldom in a server, so what only it would free stays for hours.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from remit.runtime import Runtime
from remit.server.app import App
from tests.server.asgi import AsgiRequest
from tests.server.conftest import QUICK
from tests.server.running import prompt
from tests.support.roots import new_root
from tests.support.upstream import Upstream

_HOLDS_A_BODY = ("Call", "Attempt", "Relay", "UpstreamReply")
_SOON_S = 10.0
_FAILURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "refused by the provider": ("[[status=400]]", "gpt-4o-mini", {}),
    "no model": ("", "", {}),
    "no such provider": ("", "nobody/x", {}),
    "untranslatable": ("", "claude-sonnet-4-5", {"logit_bias": {"1": 1}}),
    "unreadable": ("[[garbage=html]]", "gpt-4o-mini", {}),
    "unreadable, translated": ("[[garbage=html]]", "claude-sonnet-4-5", {}),
    "a stream breaks off": ("[[tokens=9 cut=3]]", "gpt-4o-mini", {"stream": True}),
    "a stream breaks off, translated": ("[[tokens=9 cut=3]]", "claude-sonnet-4-5",
                                        {"stream": True}),
    "the client goes": ("[[delay=30]]", "gpt-4o-mini", {"gone": True}),
    "the client goes from a stream": ("[[tokens=99 slow=1]]", "gpt-4o-mini",
                                      {"stream": True, "gone": True}),
    "the provider fails": ("[[status=500]]", "gpt-4o-mini", {}),
    "its circuit is open": ("[[status=500]]", "gpt-4o-mini", {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def runtime(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", f"{upstream.url}/v1")
        patch.setenv("ANTHROPIC_BASE_URL", upstream.url)
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            patch.setenv(name, "x")
        with Runtime.open(new_root(tmp_path_factory.mktemp("left") / "root", QUICK)) as opened:
            yield opened


async def _ask(app: App, order: str, model: str, more: dict[str, Any]) -> int:
    more = {**more}
    request = AsgiRequest([])
    if more.pop("gone", False):
        asyncio.get_running_loop().call_later(1.0, request.gone.set)
    request.chunks.append(json.dumps(prompt(f"hi {order}", **{**more, "model": model})).encode())
    await request.to(app, "POST", "/v1/chat/completions")
    return request.status


def _holding() -> list[Any]:
    """What of ours holds a body; types of that name of other tests' doubles are not meant."""
    return [
        one for one in gc.get_objects()
        if type(one).__name__ in _HOLDS_A_BODY and type(one).__module__.startswith("remit.")
    ]  # fmt: skip


def _left(before: list[Any]) -> list[str]:
    known = set(map(id, before))
    return [type(one).__name__ for one in _holding() if id(one) not in known]


async def test_nothing_is_left(runtime: Runtime) -> None:
    app = App(runtime, dev=True)
    assert await _ask(app, "", "gpt-4o-mini", {}) == 200
    left: dict[str, list[str]] = {}
    for kind, (order, model, more) in _FAILURES.items():
        gc.collect()
        before = _holding()  # by what ran earlier in this process
        gc.disable()
        try:
            await _ask(app, order, model, more)
            end = time.monotonic() + _SOON_S
            while (found := _left(before)) and time.monotonic() < end:
                await asyncio.sleep(0.2)  # tasks that were cancelled end, threads let go
            if found:
                left[kind] = found
        finally:
            gc.enable()
    await runtime.aclose()
    assert left == {}
