"""Configuration lines that point common clients at this Remit."""

from __future__ import annotations

_OPENAI = """\
from openai import OpenAI

client = OpenAI(base_url="{url}/v1", api_key="{key}")
answer = client.chat.completions.create(
    model="{model}", messages=[{{"role": "user", "content": "Hello"}}]
)
print(answer.choices[0].message.content)
"""
_ANTHROPIC = """\
from anthropic import Anthropic

client = Anthropic(base_url="{url}", api_key="{key}")
answer = client.messages.create(
    model="{model}", max_tokens=256, messages=[{{"role": "user", "content": "Hello"}}]
)
print(answer.content[0].text)
"""
_LANGCHAIN = """\
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="{model}", base_url="{url}/v1", api_key="{key}")
print(model.invoke("Hello").content)
"""
_CLAUDE_CODE = """\
export ANTHROPIC_BASE_URL={url}
export ANTHROPIC_API_KEY={key}
claude
"""
_CODEX = """\
export CODEX_API_KEY={key}
codex -c 'openai_base_url="{url}/v1"'
"""

_ALL = {
    "openai": _OPENAI,
    "anthropic": _ANTHROPIC,
    "claude-code": _CLAUDE_CODE,
    "codex": _CODEX,
    "langchain": _LANGCHAIN,
}

CLIENTS: tuple[str, ...] = tuple(_ALL)
"""The clients that :func:`snippet` knows."""


def snippet(client: str, *, url: str, key: str, model: str) -> str:
    """Return the configuration lines for a client.

    Args:
        client: one of :data:`CLIENTS`.
        url: the URL of the server, without a path.
        key: a virtual key.
        model: the model's name in requests.
    """
    return _ALL[client].format(url=url, key=key, model=model)
