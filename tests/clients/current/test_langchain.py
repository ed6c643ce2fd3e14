"""LangChain's own standard tests: OpenAI in both modes, and Anthropic."""

from __future__ import annotations

import base64
from typing import Any, ClassVar, Literal

import httpx
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_tests.integration_tests import ChatModelIntegrationTests, EmbeddingsIntegrationTests

from tests.clients.conftest import make_side

_PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
)


@pytest.fixture(autouse=True)
def _no_web(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite reads pictures and documents from the web: here they are small and at hand."""

    def get(url: str, **_: Any) -> httpx.Response:
        content = b"%PDF-1.4\n%%EOF\n" if url.endswith(".pdf") else _PICTURE
        return httpx.Response(200, content=content, request=httpx.Request("GET", url))

    monkeypatch.setattr(httpx, "get", get)


class _Chat(ChatModelIntegrationTests):
    """The suite."""

    side = "direct"
    supports_json_mode = supports_image_inputs = supports_image_urls = True
    supports_pdf_inputs = supports_image_tool_message = True
    model_override_value = "gpt-4.1"


class _OpenAI(_Chat):
    more: ClassVar[dict[str, Any]] = {}
    supports_image_tool_message = False
    structured_output_kwargs: ClassVar[dict[str, Any]] = {"method": "function_calling"}

    @property
    def chat_model_class(self) -> type[ChatOpenAI]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "gpt-4o-mini", **make_side(self.side).openai, "max_retries": 0,
                "stream_usage": True, **self.more}  # fmt: skip


class TestOpenAIDirect(_OpenAI):
    """Chat Completions."""


class TestOpenAIRemit(_OpenAI):
    side = "remit"


class _Responses(_OpenAI):
    more: ClassVar[dict[str, Any]] = {"use_responses_api": True}
    structured_output_kwargs: ClassVar[dict[str, Any]] = {}
    supports_image_tool_message = supports_pdf_tool_message = True


class TestResponsesDirect(_Responses):
    """Responses."""


class TestResponsesRemit(_Responses):
    side = "remit"


class _Anthropic(_Chat):
    supports_json_mode = False
    supports_anthropic_inputs = True
    supports_pdf_tool_message = True
    model_override_value = "claude-haiku-4-5"

    @property
    def chat_model_class(self) -> type[ChatAnthropic]:
        return ChatAnthropic

    @property
    def chat_model_params(self) -> dict[str, Any]:
        side = make_side(self.side)
        return {"model": "claude-sonnet-4-5", "base_url": side.url, "api_key": side.key,
                "max_retries": 0}  # fmt: skip

    @property
    def supported_usage_metadata_details(
        self,
    ) -> dict[Literal["invoke", "stream"], list[Any]]:
        return {"invoke": ["cache_read_input"], "stream": ["cache_read_input"]}

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> AIMessage:
        model = self.chat_model_class(**self.chat_model_params, stream_usage=True)
        if not stream:
            return model.invoke("hello")
        whole: Any = None
        for chunk in model.stream("hello"):
            whole = chunk if whole is None else whole + chunk
        return whole


class TestAnthropicDirect(_Anthropic):
    """Messages."""


class TestAnthropicRemit(_Anthropic):
    side = "remit"


class _Embeddings(EmbeddingsIntegrationTests):
    side = "direct"

    @property
    def embeddings_class(self) -> type[OpenAIEmbeddings]:
        return OpenAIEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": "text-embedding-3-small", **make_side(self.side).openai,
                "check_embedding_ctx_length": False}  # fmt: skip


class TestEmbeddingsDirect(_Embeddings):
    """Embeddings."""


class TestEmbeddingsRemit(_Embeddings):
    side = "remit"
