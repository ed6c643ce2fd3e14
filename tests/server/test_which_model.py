"""What the field ``model`` means, in the order of docs/server.md ("Which model is asked")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.server.running import Served, new_session, serving
from tests.support.upstream import Upstream
from tests.support.wire import WireServer, completion, serve

# Names that a later rule would send elsewhere.
TOML = """
[providers.anthropic]
default_model = "gpt-default-of-anthropic"

[routing.models."openai/stated"]
provider = "anthropic"
served_as = "claude-haiku-4-5"
abilities = { general = 50 }

[routing.models."gpt-stated"]
provider = "anthropic"
served_as = "claude-sonnet-4-5"
abilities = { general = 50 }
"""


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("which") / "root"
    with serving(root, upstream.url, toml=TOML) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("openai/stated", "anthropic", "claude-haiku-4-5"),
        ("gpt-stated", "anthropic", "claude-sonnet-4-5"),
        ("gpt-default-of-anthropic", "anthropic", "gpt-default-of-anthropic"),
        ("openai/claude-3", "openai", "claude-3"),
        ("claude-of-tomorrow", "anthropic", "claude-of-tomorrow"),
        ("gpt-of-tomorrow", "openai", "gpt-of-tomorrow"),
    ],
)
def test_a_name_goes_where_the_page_says(
    served: Served, name: str, provider: str, model: str
) -> None:
    session = new_session()
    status, raw, headers = served.call("openai", "hi", model=name, session=session)
    assert status == 200, raw
    assert "x-remit-decision" not in headers
    asked = served.exchange(session).metadata
    assert (asked["provider_id"], asked["model_id"]) == (provider, model)


def test_auto_is_decided_on_record(served: Served) -> None:
    status, raw, headers = served.call("openai", "hi", model="auto")
    assert status == 200, raw
    assert served.ledger.read(headers["x-remit-decision"]).id


def test_a_provider_that_is_not_there_is_refused(served: Served) -> None:
    status, raw, _ = served.call("openai", "hi", model="nobody/gpt-4o-mini")
    assert status == 404
    assert b"provider_not_found" in raw


CLAUDE = (
    "claude-sonnet-4-5", "Claude-Sonnet-4-5", "anthropic/claude-sonnet-4-5",
    "anthropic:claude-sonnet-4-5", "Anthropic:claude-sonnet-4-5", "anthropic:gpt-4o", "anthropic",
    "anthropic/", "anthropic:",
)  # fmt: skip
KINDS: Mapping[str, Mapping[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    "/v1/responses": {"input": "hi", "max_output_tokens": 16},
    "/v1/completions": {"prompt": "hi", "max_tokens": 5},
    "/v1/embeddings": {"input": "hi"},
    "/v1/images/generations": {"prompt": "hi"},
    "/v1/audio/speech": {"input": "hi", "voice": "alloy"},
    "/v1/moderations": {"input": "hi"},
    "/v1/rerank": {"query": "hi", "documents": ["hi"]},
}


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, list[WireServer]]]:
    """A server that lacks Anthropic, and has two other providers."""
    with serve(completion("fine")) as openai, serve(completion("fine")) as other:
        toml = f"""
[providers.other]
kind = "openai"
base_url = "{other.url}/v1"
default_model = "other-1"
"""
        root = tmp_path_factory.mktemp("without") / "root"
        absent = {"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": ""}
        with serving(root, openai.url, toml=toml, environment=absent) as running:
            yield running, [openai, other]


@pytest.mark.parametrize("path", KINDS)
@pytest.mark.parametrize("name", CLAUDE)
def test_a_call_reaches_no_other_provider(
    without: tuple[Served, list[WireServer]], name: str, path: str
) -> None:
    served, others = without
    status, raw, _ = served.ask("POST", path, {"model": name, **KINDS[path]})
    assert status == 404, raw
    assert b"provider_not_found" in raw
    assert b"ANTHROPIC_API_KEY" in raw
    assert [call.path for one in others for call in one.calls] == []


def test_the_other_providers_answer_what_is_theirs(
    without: tuple[Served, list[WireServer]],
) -> None:
    served, (openai, other) = without
    for name, provider in (("other:gpt-4o", other), ("other", other), ("openai:claude-x", openai)):
        assert served.call("openai", "hi", model=name)[0] == 200
        assert len(provider.calls) == 1
        provider.calls.clear()
    assert not openai.calls
    assert not other.calls
