"""The endpoints of the providers' APIs, one row for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Dialect = Literal["openai", "anthropic", "gemini", "bedrock", "a2a"]


NESTED = ("toolConfig", "additionalModelRequestFields", "inferenceConfig", "guardrailConfig",
          "promptVariables", "serviceTier", "performanceConfig", "outputConfig")  # fmt: skip
"""Members of Converse on which money rests."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of a provider's API; immutable.

    Attributes:
        name: its name in the record's ``wire``.
        dialect: the API family, which decides headers, errors and keys.
        path: path of the upstream URL after its base URL.
        prompt: the body's prompt member; a list is recorded element by element.
        parts: further repeated members that are recorded apart: name in the record → name in the
            body.
        pieces: all members recorded apart: name in the body → name in the record.
        is_unpriced: whether a request may cost something, and no table states how much.
        output_limit: members that limit the output, a dot leading into one; the first present one
            applies.
        streams: whether the answer may be a stream of server-sent events.
        free: whether providers bill nothing for it.
        form: whether the body is a form with files instead of JSON.
        has_model: whether a call names a model.
        model: the provider's default model for a body without one.
        may_lack_model: whether a body without a model gets one of Remit's choice.
        read_once: members whose objects must not have duplicate members.
        verbatim: whether the answer is passed on and recorded without parsing it.
    """

    name: str
    dialect: Dialect
    path: str
    prompt: str = "messages"
    parts: dict[str, str] = field(default_factory=dict)
    output_limit: tuple[str, ...] = ()
    streams: bool = False
    free: bool = False
    form: bool = False
    has_model: bool = True
    model: str = ""
    may_lack_model: bool = False
    verbatim: bool = False
    pieces: dict[str, str] = field(init=False)
    read_once: tuple[str, ...] = field(init=False)
    is_unpriced: bool = field(init=False)

    def __post_init__(self) -> None:
        apart = {self.prompt: "prompt", **{own: name for name, own in self.parts.items()}}
        object.__setattr__(self, "pieces", apart)
        limits = (name.partition(".") for name in self.output_limit)
        once = ("tools", "reasoning", "thread", *(outer for outer, dot, _ in limits if dot))
        nested = NESTED if self.dialect == "bedrock" else ()
        object.__setattr__(self, "read_once", (*dict.fromkeys((*once, *nested)),))
        unpriced = self.verbatim and not self.free and self.dialect != "a2a"
        object.__setattr__(self, "is_unpriced", unpriced)


CHAT = Endpoint(
    "openai.chat", "openai", "/chat/completions",
    parts={"tools": "tools"},
    output_limit=("max_completion_tokens", "max_tokens"),
    streams=True,
)  # fmt: skip
RESPONSES = Endpoint(
    "openai.responses", "openai", "/responses", "input",
    parts={"system": "instructions", "tools": "tools"},
    output_limit=("max_output_tokens",),
    streams=True, may_lack_model=True,
)  # fmt: skip
COMPACT = Endpoint(
    "openai.compact", "openai", "/responses/compact", "input",
    parts={"system": "instructions"},
    output_limit=("max_output_tokens",),
)  # fmt: skip
INPUT_TOKENS = Endpoint(
    "openai.input_tokens", "openai", "/responses/input_tokens", "input",
    parts={"system": "instructions", "tools": "tools"},
    free=True, may_lack_model=True,
)  # fmt: skip
MESSAGES = Endpoint(
    "anthropic.messages", "anthropic", "/v1/messages",
    parts={"system": "system", "tools": "tools"},
    output_limit=("max_tokens",),
    streams=True,
)  # fmt: skip
COUNT_TOKENS = Endpoint(
    "anthropic.count_tokens", "anthropic", "/v1/messages/count_tokens",
    parts={"system": "system", "tools": "tools"},
    free=True,
)  # fmt: skip
COMPLETIONS = Endpoint(
    "openai.completions", "openai", "/completions", "prompt",
    output_limit=("max_tokens",),
    streams=True,
)  # fmt: skip
EMBEDDINGS = Endpoint("openai.embeddings", "openai", "/embeddings", "input")
MODERATIONS = Endpoint(
    "openai.moderations", "openai", "/moderations", "input",
    free=True, model="omni-moderation-latest",
)  # fmt: skip
RERANK = Endpoint("openai.rerank", "openai", "/rerank", "documents")
IMAGES = Endpoint(
    "openai.images", "openai", "/images/generations", "prompt", streams=True, may_lack_model=True
)
SPEECH = Endpoint("openai.speech", "openai", "/audio/speech", "input", streams=True)
TRANSCRIPTIONS = Endpoint(
    "openai.transcriptions", "openai", "/audio/transcriptions", streams=True, form=True
)
TRANSLATIONS = Endpoint("openai.translations", "openai", "/audio/translations", form=True)
IMAGE_EDITS = Endpoint(
    "openai.image_edits", "openai", "/images/edits", streams=True, form=True, may_lack_model=True
)
IMAGE_VARIATIONS = Endpoint(
    "openai.image_variations", "openai", "/images/variations", form=True, may_lack_model=True
)  # fmt: skip

GENERATE = Endpoint(
    "gemini.generate", "gemini", "/models:generateContent", "contents",
    parts={"system": "systemInstruction", "tools": "tools"},
    output_limit=("generationConfig.maxOutputTokens",),
    streams=True,
)  # fmt: skip
"""The client names model and verb in the path, from where Remit sets ``model`` and ``stream`` in
the body; a provider's body has neither. This also holds for the next three endpoints."""

COUNT_CONTENT = Endpoint(
    "gemini.count_tokens", "gemini", "/models:countTokens", "contents", free=True
)
EMBED = Endpoint("gemini.embed", "gemini", "/models:embedContent", "content")
BATCH_EMBED = Endpoint("gemini.batch_embed", "gemini", "/models:batchEmbedContents", "requests")

CONVERSE = Endpoint(
    "bedrock.converse", "bedrock", "/model/converse",
    parts={"system": "system", "tools": "toolConfig"},
    output_limit=("inferenceConfig.maxTokens",),
    streams=True,
)  # fmt: skip
"""As with Gemini, the path names model and verb, and a provider's body has neither."""

ENDPOINTS = {
    endpoint.name: endpoint
    for endpoint in (
        CHAT, RESPONSES, COMPACT, INPUT_TOKENS, MESSAGES, COUNT_TOKENS, COMPLETIONS, EMBEDDINGS,
        MODERATIONS, RERANK,
        IMAGES, SPEECH, TRANSCRIPTIONS, TRANSLATIONS, IMAGE_EDITS, IMAGE_VARIATIONS,
        GENERATE, COUNT_CONTENT, EMBED, BATCH_EMBED, CONVERSE,
    )
}  # fmt: skip
"""By name, every endpoint by which a model is called."""

STORED_RESPONSES = Endpoint(
    "openai.stored_responses", "openai", "/responses", "", free=True, has_model=False
)
"""Responses that a provider keeps."""

STORED_CHATS = Endpoint(
    "openai.stored_chats", "openai", "/chat/completions", "", free=True, has_model=False
)
"""Chat completions that a provider keeps."""

FILES = {
    "openai": Endpoint("openai.files", "openai", "/files", free=True, has_model=False),
    "anthropic": Endpoint("anthropic.files", "anthropic", "/v1/files", free=True, has_model=False),
}
"""By dialect: files that a provider keeps."""

BATCHES = {
    "openai": Endpoint("openai.batches", "openai", "/batches", "", free=True, has_model=False),
    "anthropic": Endpoint(
        "anthropic.batches", "anthropic", "/v1/messages/batches", "requests",
        free=True, has_model=False,
    ),
}  # fmt: skip
"""By dialect: many calls in one request, answered later. Each of them is billed by itself."""

A2A = Endpoint("a2a.jsonrpc", "a2a", "", "params", streams=True, has_model=False, verbatim=True)
"""Another agent, over the Agent2Agent protocol: JSON-RPC, passed on as it is."""
