"""The gateway as agents see it: a port, not a class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from remit.kernel.exchange.request import PromptRequest
from remit.kernel.exchange.response import PromptResponse

__all__ = ["GatewayPort", "ModelCapabilities", "TextSink"]

TextSink = Callable[[str], None]
"""Receives the answer's text piece by piece, as it comes."""


@dataclass(frozen=True, slots=True)
class ModelCapabilities:
    """What the model behind a request can do.

    Attributes:
        native_tools: takes tool definitions and answers with tool_use blocks.
        structured_output: can be held to a JSON Schema.
    """

    native_tools: bool = True
    structured_output: bool = True


class GatewayPort(Protocol):
    """What a worker needs of the gateway."""

    async def aroute(
        self, request: PromptRequest, *, on_text: TextSink | None = None
    ) -> PromptResponse:
        """Send one request; never raises for a failed call, the outcome says it."""
        ...

    def capabilities(self, request: PromptRequest) -> ModelCapabilities:
        """What the model that would get ``request`` can do."""
        ...

    def input_bound(self, request: PromptRequest) -> int:
        """Most input tokens that ``request`` can be billed for, as budgets reserve them."""
        ...
