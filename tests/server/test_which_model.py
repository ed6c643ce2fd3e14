"""What the field ``model`` means, in the order of docs/server.md ("Which model answers")."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.running import FORM, Served, form, new_session, serving
from tests.support.keeping import Keeper, keeping
from tests.support.soak import sample
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
def test_a_name_goes_as_the_page_says(served: Served, name: str, provider: str, model: str) -> None:
    session = new_session()
    status, raw, headers = served.call("openai", "hi", model=name, session=session)
    assert status == 200, raw
    assert "x-remit-decision" not in headers
    asked = served.exchange(session).metadata
    assert (asked["provider_id"], asked["model_id"]) == (provider, model)


CLAUDE = (
    "claude-sonnet-4-5", "Claude-Sonnet-4-5", "anthropic/claude-sonnet-4-5",
    "anthropic:claude-sonnet-4-5", "Anthropic:claude-sonnet-4-5", "anthropic:gpt-4o", "anthropic",
    "anthropic/", "anthropic:", "anthropic.claude-sonnet-4-5-v1:0",
    "us.anthropic.claude-sonnet-4-5-v1:0", "vertex_ai:claude-sonnet-4-5",
    "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-sonnet-4-5-v1:0",
)  # fmt: skip
GPT = (
    "gpt-4o-mini", "GPT-4o-mini", "openai/gpt-4o-mini", "openai:gpt-4o-mini", "OpenAI:gpt-4o-mini",
    "openai:claude-x", "openai", "openai/", "openai:", "ft:gpt-4o-mini:acme::1", "azure:gpt-4o",
    "us.openai.gpt-oss-120b-1:0", "arn:aws:bedrock:us-east-1::foundation-model/openai.gpt-oss-20b",
)  # fmt: skip
SAID = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
KINDS: Mapping[str, Mapping[str, Any]] = {
    "/v1/chat/completions": SAID,
    "/v1/messages": SAID,
    "/v1/messages/count_tokens": SAID,
    "/v1/messages/batches": SAID,
    "/v1/batches": SAID,
    "/v1/responses": {"input": "hi", "max_output_tokens": 16},
    "/v1/completions": {"prompt": "hi", "max_tokens": 5},
    "/v1/embeddings": {"input": "hi"},
    "/v1/images/generations": {"prompt": "hi"},
    "/v1/images/edits": {"prompt": "hi", "image": b"png"},
    "/v1/images/variations": {"image": b"png"},
    "/v1/audio/speech": {"input": "hi", "voice": "alloy"},
    "/v1/audio/transcriptions": {"file": b"wav"},
    "/v1/audio/translations": {"file": b"wav"},
    "/v1/moderations": {"input": "hi"},
    "/v1/rerank": {"query": "hi", "documents": ["hi"]},
}


def _ask(served: Served, path: str, name: str) -> tuple[int, bytes, Mapping[str, str]]:
    """Ask for the model in the way of an endpoint."""
    body = {"model": name, **KINDS[path]}
    if any(isinstance(value, bytes) for value in body.values()):
        return served.ask("POST", path, form(**body), headers=FORM)
    if path == "/v1/messages/batches":
        return served.ask("POST", path, {"requests": [{"custom_id": "a", "params": body}]})
    if path == "/v1/batches":
        line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
        raw = form(purpose="batch", file=json.dumps(line).encode())
        status, answer, headers = served.ask("POST", "/v1/files", raw, headers=FORM)
        if status != 200:
            return status, answer, headers
        return served.ask("POST", path, {
            "input_file_id": json.loads(answer)["id"], "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        })  # fmt: skip
    return served.ask("POST", path, body)


Without = tuple[Served, Keeper, list[WireServer]]


@contextmanager
def _without(root: Path, missing: str, kind: str) -> Iterator[Without]:
    """A server that lacks a provider, has another, and one more of the other's kind."""
    with keeping() as keeper, serve(completion("fine")) as other:
        toml = f"""
[providers.other]
kind = "{kind}"
base_url = "{other.url}/v1"
default_model = "other-1"
"""
        absent = {f"{missing}_API_KEY": "", f"{missing}_BASE_URL": ""}
        with serving(root, keeper.url, toml=toml, environment=absent) as running:
            yield running, keeper, [other]


@pytest.fixture(scope="module")
def without_anthropic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Without]:
    with _without(tmp_path_factory.mktemp("without") / "root", "ANTHROPIC", "openai") as running:
        yield running


@pytest.fixture(scope="module")
def without_openai(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Without]:
    with _without(tmp_path_factory.mktemp("without") / "root", "OPENAI", "anthropic") as running:
        yield running


EVERY = [("anthropic", name, path) for name in CLAUDE for path in KINDS]
EVERY += [("openai", name, path) for name in GPT for path in KINDS]


@pytest.mark.soak
@pytest.mark.parametrize(("missing", "name", "path"), sample(EVERY, 60))
def test_a_call_reaches_no_other_provider(
    request: pytest.FixtureRequest, missing: str, name: str, path: str
) -> None:
    served, keeper, others = request.getfixturevalue(f"without_{missing}")
    keeper.asked.clear()
    status, raw, _ = _ask(served, path, name)
    assert status == 404, raw
    assert b"provider_not_found" in raw
    assert f"{missing.upper()}_API_KEY".encode() in raw
    assert [call.path for one in others for call in one.calls] == []
    sent = {asked.path for asked in keeper.asked}
    # A file with the lines of a batch names no model, and goes to the provider that keeps files.
    assert path == "/v1/batches" or not sent
    assert all(one.startswith("/v1/files") for one in sent), sent


def test_the_list_has_what_the_configuration_names(tmp_path: Path) -> None:
    with keeping() as keeper, serve(completion("fine")) as other:
        toml = f"""
[providers.backup]
kind = "openai"
base_url = "{other.url}/v1"
default_model = "tiny"

[routing.models."own-1"]
provider = "backup"
served_as = "big"
"""
        absent = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}
        with serving(tmp_path / "root", keeper.url, toml=toml, environment=absent) as served:
            listed = {one["id"]: one["owned_by"] for one in
                      json.loads(served.ask("GET", "/v1/models")[1])["data"]}  # fmt: skip
            # A name that leads to a listed model finds it; one that leads nowhere does not.
            for name, status in (("own-1", 200), ("backup/tiny", 200), ("backup%2Ftiny", 200),
                                 ("backup/none", 404), ("nowhere/big", 404)):  # fmt: skip
                assert served.ask("GET", f"/v1/models/{name}")[0] == status, name
    assert listed["own-1"] == "backup"
    assert "gpt-4o-mini" not in listed


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini", "converse"])
def test_a_provider_of_ones_own_has_no_default_model_of_another(tmp_path: Path, kind: str) -> None:
    with keeping() as keeper, serve(completion("fine")) as other:
        toml = f'[providers.other]\nkind = "{kind}"\nbase_url = "{other.url}/v1"\n'
        absent = {f"{one}_{what}": "" for one in ("ANTHROPIC", "OPENAI")
                  for what in ("API_KEY", "BASE_URL")}  # fmt: skip
        with serving(tmp_path / "root", keeper.url, toml=toml, environment=absent) as served:
            for name in ("gpt-4o-mini", "claude-sonnet-5"):
                status, raw, _ = _ask(served, "/v1/chat/completions", name)
                assert (status, b"provider_not_found" in raw) == (404, True), raw
            for named in ({"model": "other"}, {}):
                status, raw, _ = served.ask("POST", "/v1/responses", {"input": "hi", **named})
                assert (status, b"[providers.other] default_model" in raw) == (400, True), raw
            assert 400 <= _ask(served, "/v1/chat/completions", "auto")[0] < 500
        assert other.calls == []


def test_the_other_providers_answer_what_is_theirs(without_anthropic: Without) -> None:
    served, keeper, (other,) = without_anthropic
    keeper.replies["chat/completions"] = lambda _: completion("fine")
    keeper.asked.clear()
    for name in ("other:gpt-4o", "other", "openai:claude-x"):
        assert served.call("openai", "hi", model=name)[0] == 200
    assert len(other.calls) == 2
    assert len(keeper.asked) == 1
    other.calls.clear()
