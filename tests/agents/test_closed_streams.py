"""A runtime that closes while a streamed turn ends: no traceback on standard error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.roots import new_root
from tests.support.wire import completion, completion_stream, serve

_PROGRAM = """
import asyncio
import sys

from remit import Runtime
from remit.agents.workorders import TextDelta

place, url = sys.argv[1:]
flags = {"providers.odd.kind": "openai", "providers.odd.base_url": url,
         "providers.odd.default_model": "m", "model.default": "odd"}


def opened():
    return Runtime.open(place, flags=flags)


for close_first in (False, True):
    runtime = opened()
    events = runtime.agent("a").session().stream("go")
    next(event for event in events if isinstance(event, TextDelta))
    if close_first:
        runtime.close()
    events.close()
    runtime.close()


async def left(close_last):
    runtime = opened()
    async for event in runtime.agent("a").session().astream("go"):
        if isinstance(event, TextDelta):
            break
    if not close_last:
        runtime.close()


for close_last in (False, True):
    asyncio.run(left(close_last))
"""


def test_a_stream_that_is_left_says_nothing_on_standard_error(tmp_path: Path) -> None:
    new_root(tmp_path / "root")
    cut = completion_stream(completion("abcdefgh"), cut_after=3)
    with serve(cut) as server:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(tmp_path / "root"), f"{server.url}/v1"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
