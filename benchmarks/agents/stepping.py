"""A provider inside the process that takes no time and leads an agent through steps."""

from __future__ import annotations

import itertools
import re

from benchmarks.agents.runners.script import MARKER, TOOLS
from remit.kernel.exchange import ModelCapabilities, TextSink
from remit.providers import ProviderRequest, ProviderResponse

ANSWER = f"{MARKER}: an answer of a few sentences, as a model gives one to a question. " * 4
INPUT_TOKENS, OUTPUT_TOKENS = 250, 40
_STEPS = re.compile(r"steps=(\d+)")


class SteppingProvider:
    """Answers as :mod:`benchmarks.agents.upstream` does, without a wire; no two answers alike."""

    def __init__(self) -> None:
        self._calls = itertools.count(1)

    def capabilities(self, model_id: str) -> ModelCapabilities:
        """All that models with tools of their own can do."""
        return ModelCapabilities(native_tools=True)

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """Answer one request: the next tool, or a text when the steps are done."""
        number, results = next(self._calls), 0
        for message in reversed(request.messages):
            content = message["content"]
            if message["role"] == "user":
                if isinstance(content, str):
                    break
                results += 1  # a message of tool results
        wanted = _STEPS.search(str(content))
        if results >= int(wanted[1] if wanted else 0):
            text = f"{ANSWER} ({number})"
            return ProviderResponse(text, request.model_id, INPUT_TOKENS, OUTPUT_TOKENS)
        name = tuple(TOOLS)[results % len(TOOLS)]
        use = {
            "type": "tool_use",
            "id": f"call_{number:08x}",
            "name": name,
            "input": TOOLS[name].arguments,
        }
        return ProviderResponse(
            "", request.model_id, INPUT_TOKENS, OUTPUT_TOKENS, "tool_use", content_blocks=(use,)
        )
