"""What the field ``model`` means, in the order of docs/server.md ("Which model is asked")."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.running import Served, new_session, serving
from tests.support.upstream import Upstream

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
