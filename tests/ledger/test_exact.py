"""Content on record as exact JSON text, on both stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings, strategies as st

from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    Content,
    EntryNotFoundError,
    Erased,
    LedgerClient,
    LedgerEntry,
    LedgerError,
    LedgerFormatError,
    content as marked,
    wire_body,
)
from tests.support.soak import is_soak
from tests.support.standalone import standalone
from tests.support.stores import SIGNER, files_hold, outside

ODD = [
    b'"\\ud800"',
    b'{"a":1,"a":[2]}',
    b" 1.50e+2 ",
    b"-0",
    b"1e999",
    b"9007199254740993",
    b"[123456789012345678901234567890]",
    b"1" * 5000,
    b'"\\u0041\\u0000\\/"',
    b'\n{ "z" : null,\t"a": "\xc3\xa9" }',
    b'{"$content":"hmac","$messages":1}',
    b"[" * 150 + b"]" * 150,
]


def entry(**metadata: Any) -> LedgerEntry:
    return LedgerEntry("EXCHANGE", "S", "D", "r", metadata=metadata)


# -- writing and reading ---------------------------------------------------------------------------


def test_exact_texts_are_marked_and_kept_byte_for_byte(ledger: LedgerClient) -> None:
    said = [b' {"role": "user"}', b'\n{"type":"x"} ']
    entry_id = ledger.write(
        entry(session_id="A", answer=Content.exact(said[1]), prompt=Content.exact_list(said), n=1)
    )
    record = json.loads(ledger.read_record(entry_id))["metadata"]
    assert record["answer"].keys() == {"$content", "bytes", "form"}
    assert record["answer"]["bytes"] == len(said[1])
    assert record["prompt"].keys() == {"$messages", "count", "form"}
    assert {record["answer"]["form"], record["prompt"]["form"]} == {"exact"}
    assert rfc8785.dumps(json.loads(ledger.read_record(entry_id))) == ledger.read_record(entry_id)
    assert ledger.exact(entry_id) == {"answer": said[1], "prompt": said}
    assert ledger.read(entry_id).metadata == {
        "session_id": "A", "answer": {"type": "x"}, "prompt": [{"role": "user"}, {"type": "x"}],
        "n": 1,
    }  # fmt: skip
    assert ledger.verify().verified
    with pytest.raises(EntryNotFoundError):
        ledger.exact("LED-000000ff")


def test_every_odd_text_is_read_back(ledger: LedgerClient) -> None:
    for text in ODD:
        made = ledger.write(entry(answer=Content.exact(text), prompt=Content.exact_list([text])))
        assert ledger.exact(made) == {"answer": text, "prompt": [text]}
        try:
            expected = json.loads(text)
        except ValueError:  # more digits than Python converts
            expected = float("inf")
        assert ledger.read(made).metadata == {"answer": expected, "prompt": [expected]}
        assert list(ledger.query(text="nothing of the kind")) == []
        ledger.erase(made, reason="r")
    empty = ledger.write(entry(prompt=Content.exact_list([])))
    assert ledger.exact(empty) == {"prompt": b"[]"}
    assert ledger.read(empty).metadata == {"prompt": []}
    assert ledger.verify().verified


def test_what_json_does_not_have_and_no_store_takes_is_refused_alone(ledger: LedgerClient) -> None:
    values = [float("nan"), [2**60, float("inf")], {1: 2**60}, {"a": [2**60, b"x"]},
              {"\ud800": {2: 1}}]  # fmt: skip
    for value in (*values, *map(Content.exact, (b"", b'"\x00"', b'"\xff"'))):
        with pytest.raises(InvalidInputError):
            ledger.write(entry(prompt=value))
    ledger.write(entry(answer=Content.exact(b"1")))
    assert ledger.verify().verified
    assert ledger.count() == 1


def test_what_rfc_8785_cannot_carry_is_recorded_as_its_exact_text(ledger: LedgerClient) -> None:
    prompt = [{"role": "user", "content": "plain"}, {"role": "user", "content": "\ud800 \u00e9"}]
    arguments = {"b": 2**63, "a": 1e17, "deep": [{"text": "\udfff"}]}
    entry_id = ledger.write(
        LedgerEntry("E", "S", "D", marked("because \udc80"),
                    metadata={"prompt": prompt, "arguments": arguments, "x": Content(10**30)})
    )  # fmt: skip
    read = ledger.read(entry_id)
    assert read.reason == "because \udc80"
    assert read.metadata == {"prompt": prompt, "arguments": arguments, "x": 10**30}
    assert ledger.exact(entry_id) == {
        "prompt": [b'{"content":"plain","role":"user"}',
                   b'{"content":"\\ud800 \xc3\xa9","role":"user"}'],
        "arguments": b'{"a":1e+17,"b":9223372036854775808,"deep":[{"text":"\\udfff"}]}',
        "x": b"1000000000000000000000000000000",
    }  # fmt: skip
    metadata = json.loads(ledger.read_record(entry_id))["metadata"]
    assert all(item["form"] == "exact" for item in metadata.values())
    assert ledger.verify().verified


def test_a_tier_gets_the_exact_texts_that_it_may_see(ledger: LedgerClient) -> None:
    mine = ledger.scoped(tier="ho1", work_order_id="WO-1")
    of_it = {"scope": {"tier": "ho1"}, "work_order_id": "WO-1"}
    own = ledger.write(entry(answer=Content.exact(b" 1 "), **of_it))
    other = ledger.write(entry(answer=Content.exact(b"2"), scope={"tier": "hot"}))
    assert mine.exact(own) == {"answer": b" 1 "}
    with pytest.raises(EntryNotFoundError):
        mine.exact(other)


# -- the body of a call ----------------------------------------------------------------------------


def test_a_body_is_put_together_again(ledger: LedgerClient) -> None:
    body = b'{"model" : "m","messages":[ {"role":"user"}\n, 1 ], "tools":[\t{}], "n":2}'
    parameters = b'{"model" : "m","messages":[], "tools":[], "n":2}'
    cut = [["tools", parameters.index(b'[], "n')], ["prompt", parameters.index(b"[]")]]
    entry_id = ledger.write(
        entry(
            prompt=Content.exact_list([b' {"role":"user"}\n', b" 1 "]),
            tools=Content.exact(b"[\t{}]"),
            parameters=Content.exact(parameters),
            cut=cut,
        )
    )
    texts = ledger.exact(entry_id)
    assert wire_body(texts, ledger.read(entry_id).metadata["cut"]) == body
    with pytest.raises(LedgerFormatError, match="no place for tools"):
        wire_body(texts, [["tools", 3]])
    with pytest.raises(LedgerFormatError, match="no system"):
        wire_body(texts, [["system", cut[1][1]]])
    with pytest.raises(LedgerFormatError, match="no parameters"):
        wire_body({}, [])
    ledger.erase(entry_id, reason="r")
    with pytest.raises(LedgerError, match="erased under LED-00000001"):
        wire_body(ledger.exact(entry_id), cut)


# -- tampering, erasing, searching -----------------------------------------------------------------


def test_erased_and_found_by_words_like_any_content(target: str, tmp_path: Path) -> None:
    with LedgerClient(target) as client:
        said = [b'{"role":"user","content":"I live in Main \\u0053treet, of course"}']
        first = client.write(
            entry(session_id="A", prompt=Content.exact_list(said)), subject_id="person-1"
        )
        quoting = client.write(
            entry(session_id="A", answer=Content.exact(
                b'{"text": "You said: I live in Main Street, of course."}'))
        )  # fmt: skip
        kept = client.write(entry(session_id="A", answer=Content.exact(b'" something else "')))
        assert [item.id for item in client.query(text='"main street"')] == [first, quoting]
        client.erase(first, reason="request")
        gone = Erased("LED-00000003")
        assert client.exact(first) == {"prompt": [gone], "subject_id": gone}
        assert client.exact(quoting) == {"answer": Erased("LED-00000003")}
        assert client.exact(kept) == {"answer": b'" something else "'}
        assert not list(client.query(text="street"))
        report = client.verify()
        assert report.verified, report.problems
        client.compact()
    if "://" not in target:
        assert not files_hold(tmp_path, "treet, of course")


def test_erasing_takes_what_is_quoted_in_json_within_a_text(ledger: LedgerClient) -> None:
    street = 'Z\u00fcrich, "Bahnhofstrasse" 12'
    first = ledger.write(
        entry(session_id="A", prompt=Content.exact_list([json.dumps(street).encode()]))
    )
    call = {"function": {"name": "look_up", "arguments": json.dumps({"where": [street]})}}
    quoting = ledger.write(
        entry(session_id="A", answer=Content.exact(json.dumps({"tool_calls": [call]}).encode()))
    )
    forms: list[Any] = [
        json.dumps({"result": json.dumps({"where": street})}),
        json.dumps(json.dumps([json.dumps(street)])),
        {"found": {f"in {street}": 1}},
        "".join(
            f"event: x\ndata: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\r\n\r\n"
            for piece in ("You live in ", street[:9], street[9:20], street[20:], ".")
        ),
    ]
    others = [ledger.write(entry(session_id="A", result=marked(one))) for one in forms]
    report = ledger.erase(first, reason="r")
    assert ledger.exact(quoting) == {"answer": Erased(report.erasure_id)}
    for other in others:
        assert ledger.read(other).metadata["result"] == Erased(report.erasure_id)


def test_what_every_call_of_a_dialect_says_quotes_nobody(ledger: LedgerClient) -> None:
    def call(text: str) -> str:
        answer = {"object": "chat.completion.chunk", "model": "claude-sonnet-4-5-20250929",
                  "text": text}  # fmt: skip
        return ledger.write(
            entry(session_id="A", answer=Content.exact(json.dumps(answer).encode()))
        )

    first, quoting, other = call("Main Street 1, Springfield"), call(
        "You live in Main Street 1, Springfield."
    ), call("The weather is fine in most places.")  # fmt: skip
    ledger.erase(first, reason="r")
    assert ledger.exact(quoting) == {"answer": Erased("LED-00000003")}
    assert isinstance(ledger.exact(other)["answer"], bytes)


_TOOL = {"name": "search_knowledge_base", "description": "Look it up.",
         "input_schema": {"type": "object", "required": ["customer_reference"],
                          "properties": {"customer_reference": {"type": "string"}}}}  # fmt: skip
_CHAT_CALL = {"id": "call_1", "type": "function",
              "function": {"name": "search_knowledge_base",
                           "arguments": '{"customer_reference": "4711"}'}}  # fmt: skip
_ANSWER: dict[str, Any] = {"id": "x", "object": "chat.completion", "system_fingerprint": "fp",
                           "model": "claude-sonnet-4-5-20250929"}  # fmt: skip
_STREAM = "".join(f"data: {json.dumps(one)}\n\n" for one in [
    {"object": "chat.completion.chunk", "choices": [{"delta": {"tool_calls": [_CHAT_CALL]}}]},
    {"type": "response.output_item.added", "item": {**_TOOL, "type": "tool_use"}},
])  # fmt: skip


@pytest.mark.parametrize(
    "word",
    ["search_knowledge_base", "customer_reference", "parallel_tool_calls", "system_fingerprint",
     "chat.completion.chunk", "claude-sonnet-4-5-20250929"],
)  # fmt: skip
def test_names_are_no_quotes(ledger: LedgerClient, word: str) -> None:
    """A person may say the name of a tool, a member or a model; other calls use the name."""

    def write(value: Any) -> str:
        return ledger.write(entry(session_id="A", result=marked(value)))

    first = ledger.write(entry(session_id="A", prompt=[{"role": "user", "content": word}]))
    quoting = [write(one) for one in (
        f"You said {word}", {"text": word}, {"name": word}, {"input": {"type": word}},
        {"type": f"the type {word}"}, json.dumps({"model": word}),
    )]  # fmt: skip
    naming = [write(one) for one in (
        {"parallel_tool_calls": True, "tools": [_TOOL], "model": _ANSWER["model"]}, _TOOL,
        _ANSWER, {"role": "assistant", "tool_calls": [_CHAT_CALL]}, f"{_STREAM}data: [DONE]\n\n",
        {"type": "function_call_output", "output": '{"parallel_tool_calls": 1}'},
        {"tool_choice": {"type": "function", "function": {"name": "search_knowledge_base"}}},
    )]  # fmt: skip
    gone = Erased(ledger.erase(first, reason="r").erasure_id)
    assert [ledger.read(one).metadata["result"] for one in quoting] == [gone] * len(quoting)
    assert gone not in [ledger.read(one).metadata["result"] for one in naming]
    # In turn, names of an erased value take nothing with them.
    for one in naming[:-1]:
        ledger.erase(one, reason="r")
    assert ledger.read(naming[-1]).metadata["result"] != gone
    assert isinstance(ledger.read(naming[-1]).metadata["result"], dict)
    assert ledger.verify().problems == []


def _events(*events: dict[str, Any], end: str = "\n\n") -> str:
    return "".join(f"data: {json.dumps(event)}{end}" for event in events)


def _chunk(index: int, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta}]}


_STREET = "Zürich, Bahnhofstrasse 12"
_CALLED = json.dumps({"where": _STREET})  # with an escape, which a provider may split
_STREAMS = {
    "two answers at once": _events(
        _chunk(0, content=_STREET[:9]), _chunk(1, content="At the "),
        _chunk(0, content=_STREET[9:]), _chunk(1, content="harbour."),
    ),
    "two calls at once": _events(*(
        {"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece}
        for pieces in zip((_CALLED[:14], _CALLED[14:]), ('{"x"', ": 1}"), strict=True)
        for index, piece in enumerate(pieces)
    )),
    "an id first": "id: 1\n" + _events(
        _chunk(0, content=_STREET[:9]), _chunk(0, content=_STREET[9:])
    ),
    "a byte order mark and returns": "\ufeff" + _events(
        _chunk(0, content=_STREET[:9]), _chunk(0, content=_STREET[9:]), end="\r\r"
    ),
}  # fmt: skip


@pytest.mark.parametrize("stream", _STREAMS.values(), ids=_STREAMS.keys())
def test_a_quote_that_a_stream_splits_is_erased(ledger: LedgerClient, stream: str) -> None:
    first = ledger.write(entry(session_id="A", prompt=[{"role": "user", "content": _STREET}]))
    quoting = ledger.write(entry(session_id="A", stream=marked(stream)))
    gone = Erased(ledger.erase(first, reason="r").erasure_id)
    assert ledger.read(quoting).metadata["stream"] == gone
    # In turn, what a stream says is erased where it is quoted.
    metadata = {"session_id": "B", "stream": marked(stream)}
    first, quoting = ledger.write(entry(**metadata)), ledger.write(
        entry(session_id="B", prompt=[{"role": "user", "content": f"Is it {_STREET}?"}])
    )  # fmt: skip
    gone = Erased(ledger.erase(first, reason="r").erasure_id)
    assert ledger.read(quoting).metadata["prompt"] == [gone]


def test_a_stream_is_erased_with_its_answer(target: str) -> None:
    """Whatever form the stream has, and whichever part of the answer quotes the text."""
    half = json.dumps(_chunk(0, content=_STREET))
    stream = f"data: {half[:60]}\ndata: {half[60:]}\n\n"  # one event on two lines
    other = {"stream": marked(_events(_chunk(0, content="At the harbour."))),
             "response": "At the harbour."}  # fmt: skip
    with LedgerClient(target) as client:
        for said in (
            {"answer": Content.exact(json.dumps({"text": f"In {_STREET}."}).encode())},
            {"response": f"In {_STREET}."},
            {"content_blocks": marked([{"text": f"In {_STREET}."}])},
        ):
            first = client.write(
                entry(session_id="A", prompt=[{"role": "user", "content": _STREET}])
            )
            quoting = client.write(
                entry(session_id="A", stream=marked(stream), prompt=[{"role": "user",
                      "content": "Where?"}], **said)
            )  # fmt: skip
            kept = client.write(
                entry(session_id="A", prompt=[{"role": "user", "content": f"{_STREET}?"}], **other)
            )
            gone = Erased(client.erase(first, reason="r").erasure_id)
            metadata = client.read(quoting).metadata
            assert {metadata[name] for name in ("stream", *said)} == {gone}
            assert metadata["prompt"] == [{"role": "user", "content": "Where?"}]
            metadata = client.read(kept).metadata
            assert (metadata["prompt"], metadata["response"]) == ([gone], other["response"])
            assert metadata["stream"] == other["stream"]
        assert client.verify().problems == []


# -- any JSON text ---------------------------------------------------------------------------------

_SPACE = st.text(" \t\r\n", max_size=3)
_STRING = st.lists(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters='"\\', min_codepoint=32),
        st.sampled_from(['\\"', "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t"]),
        st.integers(0, 0xFFFF).map("\\u{:04x}".format),
    ),
    max_size=8,
).map(lambda parts: f'"{"".join(parts)}"')
_NUMBER = st.from_regex(
    r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True
)


def _around(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(_SPACE, texts, _SPACE).map("".join)


_TEXT = st.recursive(
    _around(st.one_of(_STRING, _NUMBER, st.sampled_from(["null", "true", "false"]))),
    lambda inner: _around(
        st.one_of(
            st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]"),
            st.lists(st.tuples(_SPACE, _STRING, _SPACE, inner), max_size=4).map(
                lambda items: "{" + ",".join(f"{a}{k}{b}:{v}" for a, k, b, v in items) + "}"
            ),
        )
    ),
    max_leaves=8,
).map(str.encode)


@pytest.mark.soak
@given(
    told=st.lists(
        st.tuples(st.sampled_from(["A", "B", ""]), _TEXT, st.lists(_TEXT, max_size=3)), max_size=5
    )
)
@settings(
    max_examples=300 if is_soak() else 8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_json_text_is_kept_byte_for_byte(
    target: str, tmp_path: Path, told: list[tuple[str, bytes, list[bytes]]]
) -> None:
    kept: dict[str, dict[str, Any]] = {}
    with LedgerClient(target, signer=SIGNER) as client:
        for session, answer, prompt in told:
            metadata = {"answer": Content.exact(answer), "prompt": Content.exact_list(prompt)}
            entry_id = client.write(entry(session_id=session, **metadata))
            kept[entry_id] = {"answer": answer, "prompt": prompt or b"[]"}
        for entry_id, texts in kept.items():
            assert client.exact(entry_id) == texts
            read = client.read(entry_id).metadata
            assert read["answer"] == json.loads(texts["answer"])
            if isinstance(texts["prompt"], list):
                assert read["prompt"] == [json.loads(text) for text in texts["prompt"]]
        report = client.verify()
        assert report.verified, report.problems
        client.export(tmp_path / "all.jsonl")
    with LedgerClient(tmp_path / "copy.db", signer=SIGNER) as copy:
        copy.import_jsonl(tmp_path / "all.jsonl", key=SIGNER.verifier_key)
        assert copy.verify().verified
        for entry_id, texts in kept.items():
            assert copy.exact(entry_id) == texts
        copy.export(tmp_path / "again.jsonl")
    first, again = (
        (tmp_path / name).read_bytes().split(b"\n", 1)[1] for name in ("all.jsonl", "again.jsonl")
    )
    assert first == again
    for name in ("copy.db", "copy.db-wal", "copy.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)


def test_exports_carry_exact_texts(target: str, tmp_path: Path) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        for text in ODD:
            client.write(entry(session_id="A", answer=Content.exact(text),
                               prompt=Content.exact_list([text, text])))  # fmt: skip
        client.export(tmp_path / "tiles", format="tiles")
        client.write(LedgerEntry("E", "S", "D", marked("a \udc80"), metadata={}))
        client.erase("LED-00000000", reason="r")
        client.export(tmp_path / "all.jsonl")
    told = [json.loads(line) for line in (tmp_path / "all.jsonl").read_bytes().splitlines()]
    assert [line["contents"][0]["json"].encode() for line in told[2:-2]] == ODD[1:]
    run = (tmp_path / "all.jsonl", "--key", str(SIGNER.verifier_key))
    assert standalone(*run).returncode == 0
    told[2]["contents"][0]["json"] += " "
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    assert "seq 1): content is missing, or another was put in" in standalone(*run).stderr
    with (
        LedgerClient(tmp_path / "copy.db") as copy,
        pytest.raises(LedgerError, match="does not match its commitment"),
    ):
        copy.import_jsonl(tmp_path / "all.jsonl")


@pytest.mark.parametrize("column", ["nonce", "commitment", "digest"])
def test_a_changed_row_enters_no_new_record(ledger: LedgerClient, target: str, column: str) -> None:
    one, two = Content.exact(b'"one"'), Content.exact(b'"two"')
    first = ledger.write(entry(session_id="A", answer=one))
    ledger.write(entry(session_id="A", answer=two))
    ledger.write(entry(session_id="A", answer=one, prompt=two))
    other = f"(SELECT {column} FROM contents AS o WHERE o.content_id = 2)"
    if column == "digest":
        outside(target, "UPDATE contents SET digest = nonce WHERE content_id = 1")
        ledger.write(entry(session_id="A", answer=one))  # is not found, and stored again
    else:
        outside(target, f"UPDATE contents SET {column} = {other} WHERE content_id = 1")
        with pytest.raises(LedgerFormatError, match="is not what it was"):
            ledger.write(entry(session_id="A", answer=one))
    assert ledger.verify().first_bad_seq == int(first[4:], 16)
