"""A provider that takes no time, so that all time measured is Remit's."""

from __future__ import annotations

from remit.kernel.exchange import ModelCapabilities, TextSink
from remit.providers import ProviderRequest, ProviderResponse

CLASSIFICATION = '{"speech_act":"question","ambiguity":"low"}'
ANSWER = "An answer of a few sentences, as a model gives one to a short question. " * 4


class InstantProvider:
    """Answers at once: a classification where it is held to a schema, else a text."""

    def capabilities(self, model_id: str) -> ModelCapabilities:
        """All that models with tools of their own can do."""
        return ModelCapabilities(native_tools=True)

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """Answer one request."""
        text = ANSWER if request.response_schema is None else CLASSIFICATION
        return ProviderResponse(text, request.model_id, input_tokens=500, output_tokens=80)
