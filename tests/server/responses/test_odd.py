"""Answers of any shape: passed on, on record, and never an error of Remit's own behind them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.server.extensions import HttpError
from remit.server.responses.items import fitting, id_of, items_in, listed, page, portable, type_of
from remit.server.responses.response_stream import stream_of
from tests.server.running import Served
from tests.support import wire
from tests.support.soak import is_soak

_EXAMPLES = 300 if is_soak() else 100

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "type", "role", "content", "summary", "text", "output", "x"]),
            inner
            | st.sampled_from(["message", "reasoning", "function_call", "user", "output_text"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.soak
@given(values)
@settings(max_examples=_EXAMPLES)
def test_items_of_any_shape(value: Any) -> None:
    text = json.dumps(value).encode()
    for item in items_in(text):
        assert isinstance(type_of(item), str)
        assert isinstance(id_of(item), str)
        shown = listed(item, "msg_1")
        json.loads(shown)
        for same in (True, False):
            for left in portable([item], same_provider=same):
                json.loads(left)
        if isinstance(json.loads(item), dict):
            assert id_of(shown)
    for query in ("", "limit=1&order=asc", "after=msg_1"):
        try:
            json.loads(page(items_in(text), query))
        except HttpError as refused:
            assert refused.status == 400


@given(
    st.lists(st.sampled_from(["user", "assistant", "developer", "call"]), max_size=9),
    st.integers(-10, 900),
)
def test_what_fits(roles: list[str], room: int) -> None:
    items = [json.dumps({"role": role, "at": at}).encode() for at, role in enumerate(roles)]
    left = fitting(items, room)
    assert [item for item in items if item in left] == left
    assert [item for item in items if b"developer" in item and item not in left] == []
    if sum(map(len, items)) <= room:
        assert left == items
    if "user" in roles:
        last = len(roles) - 1 - roles[::-1].index("user")
        assert items[last:] == left[-len(items[last:]) :]
        gone = [item for item in items if item not in left]
        if gone:
            begin = next(item for item in left if b"developer" not in item)
            assert b"user" in begin


@pytest.mark.soak
@given(st.dictionaries(st.sampled_from(["id", "output", "status"]), values))
@settings(max_examples=_EXAMPLES)
def test_streams_of_any_object(value: dict[str, Any]) -> None:
    text = json.dumps(value).encode()
    wire = stream_of(text)
    events = [json.loads(part.partition(b"data: ")[2]) for part in wire.split(b"\n\n") if part]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"] == value
    assert stream_of(text, after=len(events) - 2) == wire[wire.rindex(b"event: ") :]


ODD = [
    {"id": "resp_0", "output": []},
    {"id": "resp_1", "output": [7, None, [], {"type": 3}, {"id": 4, "type": "message"}]},
    {"id": "resp_2", "output": "words", "usage": "none"},
    {"id": 12, "output": []},
    {"id": "resp_\x00", "output": []},
    {"id": "r" * 5000, "output": []},
    [],
    "text",
]


@pytest.fixture(scope="module")
def backend(behind: wire.WireServer) -> wire.WireServer:
    return behind


@pytest.mark.parametrize("answer", ODD, ids=range(len(ODD)))
def test_answers_of_any_shape(served: Served, behind: wire.WireServer, answer: Any) -> None:
    raw = wire.Raw(json.dumps(answer).encode())
    behind.script = [raw]
    body = {"model": "gpt-4o", "input": "x"}
    status, got, _ = served.ask("POST", "/v1/responses", body)
    assert (status, got) == (200, raw.body)
    name = answer["id"] if isinstance(answer, dict) else ""
    if re.fullmatch(r"resp_\d", str(name)):
        assert served.ask("GET", f"/v1/responses/{name}")[:2] == (200, got)
        assert served.ask("GET", f"/v1/responses/{name}/input_items")[0] == 200
        assert served.ask("GET", f"/v1/responses/{name}?stream=true")[0] == 200
        more = {**body, "previous_response_id": name}
        assert served.ask("POST", "/v1/responses", more)[0] == 200
        # Another provider is told what of it can be told, or refuses it by its field.
        other = {**more, "model": "claude-sonnet-4-5", "max_output_tokens": 20}
        assert served.ask("POST", "/v1/responses", other)[0] in (200, 400, 502)
    else:
        assert served.ask("GET", "/v1/responses/resp_a")[0] == 404
