"""The models that the strict provider knows."""

from __future__ import annotations

import re
from typing import Any

from tests.support.strict.shapes import Wrong

__all__ = ["anthropic_list", "must_be", "openai_list", "reasons"]

_OPENAI = {
    "chat": re.compile(r"(gpt-[3-9][\w.-]*|o[134](-[\w-]+)?|chatgpt-4o-latest|codex-mini-latest)"),
    "embeddings": re.compile(r"text-embedding-(3-small|3-large|ada-002)"),
    "completions": re.compile(r"gpt-3\.5-turbo-instruct|babbage-002|davinci-002"),
    "moderations": re.compile(r"omni-moderation-[\w-]+|text-moderation-[\w-]+"),
    "images": re.compile(r"gpt-image-[\w.-]+|dall-e-[23]"),
    "speech": re.compile(r"tts-1(-hd)?|gpt-4o-mini-tts"),
    "transcriptions": re.compile(r"whisper-1|gpt-4o(-mini)?-transcribe[\w-]*"),
}
_ANTHROPIC = re.compile(r"claude-[a-z0-9-]+")
_LISTED = ("gpt-4o-mini", "gpt-4.1", "gpt-5-mini", "o4-mini", "text-embedding-3-small")
_CLAUDES = ("claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-5")


def reasons(model: str) -> bool:
    """Whether it thinks before it answers, and so takes no ``max_tokens`` and no temperature."""
    return bool(re.match(r"o[134]|gpt-[5-9](?!.*chat)", model))


def must_be(model: str, kind: str) -> None:
    """Refuse what this provider does not have.

    Raises:
        Wrong: with the code ``model_not_found``.
    """
    known = _ANTHROPIC if kind == "messages" else _OPENAI[kind]
    if not known.fullmatch(model) or "nothing" in model:
        said = (f"model: {model}" if kind == "messages" else
                f"The model `{model}` does not exist or you do not have access to it.")  # fmt: skip
        raise Wrong(said, "model", "model_not_found")


def _openai(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "system"}


def openai_list(name: str = "") -> dict[str, Any]:
    """``GET /v1/models``, or one of them."""
    if name:
        if name not in _LISTED:
            raise Wrong(f"The model '{name}' does not exist", "model", "model_not_found")
        return _openai(name)
    return {"object": "list", "data": [_openai(each) for each in _LISTED]}


def _claude(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name.replace("-", " ").title(),
            "created_at": "2025-09-29T00:00:00Z"}  # fmt: skip


def anthropic_list(name: str = "") -> dict[str, Any]:
    """The same of Anthropic."""
    if name:
        if name not in _CLAUDES:
            raise Wrong(f"model: {name}", "model", "model_not_found")
        return _claude(name)
    return {"data": [_claude(each) for each in _CLAUDES], "has_more": False,
            "first_id": _CLAUDES[0], "last_id": _CLAUDES[-1]}  # fmt: skip
