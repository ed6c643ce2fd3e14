"""Bodies as they are on the wire: read, changed, cut for the record and joined again."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, strategies as st

from remit.ledger import wire_body
from remit.providers import Body
from remit.providers.wire import CHAT, MESSAGES, RESPONSES, BodyError, Endpoint
from remit.providers.wire.body import Cut

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def _joined(cut: Cut) -> bytes:
    return wire_body({"parameters": cut.parameters, **cut.pieces}, list(cut.places.items()))


_MESSAGES = st.lists(_VALUES, min_size=1, max_size=4)


@given(_MESSAGES, st.dictionaries(st.sampled_from(["system", "tools", "x", "y"]), _VALUES),
       st.sampled_from([None, 1]), st.booleans())  # fmt: skip
@example([""], {}, None, True)
@example([-1, {}], {}, 1, True)
def test_a_body_cut_and_joined_is_the_same(messages, more, indent, ascii_only) -> None:  # type: ignore[no-untyped-def]
    raw = json.dumps(
        {**more, "messages": messages, "model": "m"}, indent=indent, ensure_ascii=ascii_only
    ).encode("utf-8", "surrogatepass")
    try:
        body = Body.read(MESSAGES, raw)
    except BodyError:
        return
    cut = body.cut()
    assert _joined(cut) == raw
    if type(messages[0]) is int:
        assert json.loads(cut.pieces["prompt"]) == messages  # type: ignore[arg-type]
    else:
        assert len(cut.pieces["prompt"]) == len(messages)
    rest = json.loads(cut.parameters)
    assert rest["messages"] == []
    assert rest.get("x") == more.get("x")


@pytest.mark.parametrize(
    ("endpoint", "more"),
    [
        (RESPONSES, b'"reasoning":{"mode":"standard","mode":"pro"}'),
        (RESPONSES, b'"reasoning":{},"reasoning":{"mode":"pro"}'),
        (MESSAGES, b'"thread":{"type":"create","type":"continue"}'),
        (MESSAGES, b'"thread":null,"thread":{"type":"continue"}'),
    ],
)
def test_what_costs_depend_on_is_stated_once(endpoint: Endpoint, more: bytes) -> None:
    raw = b'{"model":"m","max_tokens":9,"messages":[{}],"input":"x",%b}' % more
    with pytest.raises(BodyError) as refused:
        Body.read(endpoint, raw)
    assert refused.value.param in ("reasoning", "thread")


@pytest.mark.parametrize(("raw", "path", "was"), [
    (b'{"model":"m","messages":[1]}', "/stream_options", None),
    (b'{"stream_options":null,"model":"m","messages":[1]}', "/stream_options", "null"),
    (b'{"stream_options":{"x":1},"model":"m","messages":[1]}', "/stream_options/include_usage",
     None),
    (b'{"stream_options":{"include_usage":false},"model":"m","messages":[1]}',
     "/stream_options/include_usage", "false"),
])  # fmt: skip
def test_a_change_names_the_uppermost_value_that_is_new(
    raw: bytes, path: str, was: str | None
) -> None:
    body = Body.read(CHAT, raw).with_member(("stream_options", "include_usage"), b"true", "why")
    assert body.value["stream_options"]["include_usage"] is True
    assert body.changed == [
        {"path": path, "reason": "why", **({} if was is None else {"was": was})}
    ]


@pytest.mark.parametrize(("raw", "param"), [
    (b"[]", None), (b"{", None), (b'{"messages":[1]}', "model"),
    (b'{"model":7,"messages":[1]}', "model"), (b'{"model":"m","messages":"x"}', "messages"),
    (b'{"model":"m","messages":[]}', "messages"), (b'{"model":"m","input":[1]}', "messages"),
    (b'{"model":"m","messages":[1],"max_tokens":0}', "max_tokens"),
    (b'{"model":"m","messages":[1],"max_tokens":"9"}', "max_tokens"),
    (b'{"model":"m","messages":[1],"max_completion_tokens":1.5}', "max_completion_tokens"),
    (b'{"model":"m","messages":[1],"stream":"yes"}', "stream"),
])  # fmt: skip
def test_what_costs_depend_on_is_checked(raw: bytes, param: str | None) -> None:
    with pytest.raises(BodyError) as error:
        Body.read(CHAT, raw)
    assert error.value.param == param
    assert ("/v1/responses" in error.value.message) == (b'"input"' in raw)
