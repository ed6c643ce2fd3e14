"""``/v1/responses/compact`` and ``/v1/responses/input_tokens``."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.server.conftest import QUICK
from tests.server.running import Served, new_session, serving
from tests.server.strict import CLAUDE, GPT, client_of
from tests.support import wire

_COMPACTED = {
    "id": "resp_c", "object": "response.compaction", "created_at": 1,
    "output": [{"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAA"}],
    "usage": {"input_tokens": 900, "input_tokens_details": {"cached_tokens": 0},
              "output_tokens": 40, "output_tokens_details": {"reasoning_tokens": 0},
              "total_tokens": 940},
}  # fmt: skip
_COUNTED = {"object": "response.input_tokens", "input_tokens": 17}


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, wire.WireServer]]:
    """A server, and an upstream that answers both paths."""
    root = tmp_path_factory.mktemp("compaction") / "root"
    with wire.serve(_COMPACTED) as upstream, serving(root, upstream.url, toml=QUICK) as running:
        yield running, upstream


@pytest.fixture(autouse=True)
def _answers(behind: tuple[Served, wire.WireServer]) -> None:
    behind[1].script[:] = [_COMPACTED]


def test_a_compaction_is_recorded_and_charged(behind: tuple[Served, wire.WireServer]) -> None:
    served, upstream = behind
    session = new_session()
    with client_of(served) as client:
        answer = client.responses.compact(
            model=GPT, input=[{"role": "user", "content": "hi"}], instructions="Keep names.",
            extra_headers={"x-remit-session": session},
        )  # fmt: skip
    assert answer.output[0].type == "compaction"
    assert upstream.calls[-1].path == "/v1/responses/compact"
    assert upstream.calls[-1].body["instructions"] == "Keep names."
    exchange = served.exchange(session).metadata
    assert (exchange["wire"], exchange["cost_certainty"]) == ("openai.compact", "measured")
    assert (exchange["input_tokens"], exchange["output_tokens"]) == (900, 40)
    # Without an output it is charged at its bound.
    upstream.script[:] = [{"object": "response.compaction", "output": []}]
    path, session, body = "/v1/responses/compact", new_session(), {"model": GPT, "input": "hi"}
    served.ask("POST", path, body, headers={"x-remit-session": session})
    upstream.script[:] = [_COMPACTED]
    assert served.exchange(session).metadata["cost_certainty"] == "upper_bound"
    # A budget holds, and another provider does not compact.
    before = len(upstream.calls)
    assert served.ask("POST", path, body, token=served.key(tokens=100).key)[0] == 402
    assert served.ask("POST", path, {**body, "model": CLAUDE})[0] in (400, 404)
    assert len(upstream.calls) == before


def test_a_count_is_free_or_estimated(behind: tuple[Served, wire.WireServer]) -> None:
    served, upstream = behind
    upstream.script[:] = [_COUNTED]
    session = new_session()
    with client_of(served, served.key(tokens=100).key) as client:
        count = client.responses.input_tokens
        named = {"x-remit-session": session}
        answer = count.count(model=GPT, input="hi", extra_headers=named)
        before = len(upstream.calls)
        other = count.with_raw_response.count(model=CLAUDE, input="a few words")
    assert answer.input_tokens == 17
    exchange = served.exchange(session).metadata
    assert (exchange["wire"], exchange["cost_usd"]) == ("openai.input_tokens", 0)
    assert other.headers["x-remit-estimated"] == "true"
    assert other.parse().input_tokens > 0
    assert len(upstream.calls) == before


@pytest.mark.parametrize("path", ["compact", "input_tokens"])
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "resp_" + "0" * 48}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
    ],
)
def test_memory_of_another_caller_is_not_named(
    behind: tuple[Served, wire.WireServer], path: str, body: dict[str, object], param: str
) -> None:
    served, upstream = behind
    before = len(upstream.calls)
    with client_of(served) as client, pytest.raises(openai.BadRequestError) as refused:
        client.post(
            f"/responses/{path}", body={"model": GPT, "input": "hi", **body}, cast_to=object
        )
    assert refused.value.param == param
    assert len(upstream.calls) == before
