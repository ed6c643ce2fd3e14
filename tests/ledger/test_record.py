"""The frozen format, recomputed with nothing but the standard library and the reference JCS."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import datetime
from typing import Any

import rfc8785
from hypothesis import HealthCheck, given, settings, strategies as st

from remit.ledger import Content, LedgerClient, LedgerEntry, content
from remit.ledger.record import number_text
from remit.ledger.record_builder import prepare
from tests.kernel.test_json_text import json_values, numbers, texts


def _entry(**metadata: Any) -> LedgerEntry:
    return LedgerEntry("EVENT", "SUB-1", "DONE", "because", metadata=metadata)


def test_an_entry_states_its_sequence_number(ledger: LedgerClient) -> None:
    entry = _entry()
    assert entry.seq == -1
    start = ledger.count()
    ledger.write_many([_entry() for _ in range(17)])
    name = ledger.write(entry)
    assert entry.seq == ledger.read(name).seq == start + 17
    entry.id = "LED-0x1"
    assert entry.seq == -1


def test_the_record_is_the_entry_without_its_hash_plus_seq(ledger: LedgerClient) -> None:
    first, second = _entry(n=1), _entry(n=2, session_id="SES-AAAAAAAA")
    ledger.write_many([first, second])
    expected = {
        "decision": "DONE",
        "event_type": "EVENT",
        "id": "LED-00000001",
        "metadata": {"n": 2, "session_id": "SES-AAAAAAAA"},
        "previous_hash": first.entry_hash,
        "prompts_used": [],
        "reason": "because",
        "seq": 1,
        "submission_id": "SUB-1",
        "timestamp": second.timestamp,
    }
    record = ledger.read_record(second.id)
    assert record == rfc8785.dumps(expected)
    assert second.entry_hash == hashlib.sha256(record).hexdigest()
    assert first.previous_hash == ""
    assert datetime.strptime(first.timestamp, "%Y-%m-%dT%H:%M:%S.%fZ")


_contents = st.one_of(
    json_values.map(lambda value: (Content(value), value)),
    texts.map(lambda value: (content(value), value)),
    json_values.map(rfc8785.dumps).map(lambda text: (Content.exact(text), text)),
)
_metadata = st.dictionaries(
    texts | st.sampled_from(["\ufb33", "\U0001f600", "Ä"]),
    st.recursive(
        json_values | _contents,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=8,
    ),
    max_size=6,
).filter(lambda metadata: "$" not in repr(metadata))


@given(metadata=_metadata, prompt=json_values, reason=texts | texts.map(content))
@settings(max_examples=80, deadline=None)
def test_the_reference_encoding_is_ours(metadata: dict[str, Any], prompt: Any, reason: str) -> None:
    """Of any metadata: content in lists, keys that sort by UTF-16, numbers with exponents."""
    found: list[Any] = []

    def stand(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: stand(item) for name, item in value.items()}
        if isinstance(value, list):
            return [stand(item) for item in value]
        if not isinstance(value, tuple):
            return value
        encoded = value[1] if isinstance(value[1], bytes) else rfc8785.dumps(value[1])
        found.append(value)
        stands = {"$content": f"hmac-sha256:{len(found) - 1:064x}", "bytes": len(encoded)}
        return stands | ({"form": "exact"} if isinstance(value[1], bytes) else {})

    expected = {
        "decision": "D",
        "event_type": "E",
        "id": "LED-0000002a",
        "metadata": stand({**metadata, "prompt": (None, prompt)}),
        "previous_hash": "ab" * 32,
        "prompts_used": ["é"],
        "reason": stand((reason, reason)) if type(reason) is not str else reason,
        "seq": 42,
        "submission_id": "S",
        "timestamp": "T",
    }
    prepared = prepare(
        LedgerEntry("E", "S", "D", reason, ["é"], {**_marked(metadata), "prompt": prompt}),
        frozenset({"prompt"}),
    )
    for _ in range(2):  # a transaction that is tried again seals again
        commitments = [f"{number:064x}" for number in range(len(prepared.contents))]
        sealed = prepared.seal(42, "T", "ab" * 32, commitments)
        assert sealed.record == rfc8785.dumps(expected)
    assert sealed.entry_hash == hashlib.sha256(sealed.record).hexdigest()


def _marked(value: Any) -> Any:
    """What is handed over: the first of each pair."""
    if isinstance(value, tuple):
        return value[0]
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    return [_marked(item) for item in value] if isinstance(value, list) else value


@given(value=json_values)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
def test_content_is_an_hmac_over_its_jcs(ledger: LedgerClient, value: Any) -> None:
    entry_id = ledger.write(_entry(note=content(value), session_id="SES-PROPERTY"))
    stands = json.loads(ledger.read_record(entry_id))["metadata"]["note"]
    if "$messages" in stands:
        return  # lists of messages have a test of their own
    assert set(stands) == {"$content", "bytes"}
    encoded = rfc8785.dumps(value)
    mac = stands["$content"].removeprefix("hmac-sha256:")
    ((nonce,),) = ledger.select("SELECT nonce FROM contents WHERE commitment = ?", (mac,))
    assert len(nonce) == 32
    assert hmac.new(nonce, encoded, hashlib.sha256).hexdigest() == mac
    assert stands["bytes"] == len(encoded)
    assert rfc8785.dumps(ledger.read(entry_id).metadata["note"]) == encoded


@given(st.lists(texts, min_size=1, max_size=6))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
def test_messages_have_one_chained_commitment(ledger: LedgerClient, said: list[str]) -> None:
    messages = [{"role": "user", "content": text} for text in said]
    entry_id = ledger.write(_entry(prompt=messages, session_id="SES-PROPERTY"))
    stands = json.loads(ledger.read_record(entry_id))["metadata"]["prompt"]
    step = bytes(32)
    for message in messages:
        encoded = rfc8785.dumps(message)
        found = ledger.select(
            "SELECT nonce, commitment FROM contents WHERE scope = 's:SES-PROPERTY' AND digest = ?",
            (hashlib.sha256(encoded).digest(),),
        )
        mac = hmac.digest(found[0][0], encoded, "sha256")
        assert mac.hex() == found[0][1]
        step = hashlib.sha256(step + mac).digest()
    assert stands == {"$messages": step.hex(), "count": len(messages)}
    assert ledger.read(entry_id).metadata["prompt"] == messages


def test_configured_keys_are_content_at_any_depth(ledger: LedgerClient) -> None:
    entry_id = ledger.write(_entry(outer={"prompt": "deep secret"}, response="", plain="open"))
    record = ledger.read_record(entry_id).decode()
    assert "deep secret" not in record
    assert record.count("$content") == 2
    assert '"plain":"open"' in record


def test_a_marked_reason_is_content(ledger: LedgerClient) -> None:
    entry = LedgerEntry("EVENT", "S", "D", content("the provider said: Ada's secret"))
    ledger.write(entry)
    assert b"Ada" not in ledger.read_record(entry.id)
    assert ledger.read(entry.id).reason == "the provider said: Ada's secret"


def test_one_value_has_one_nonce_in_a_session_and_others_elsewhere(ledger: LedgerClient) -> None:
    def commitment(session_id: str) -> str:
        entry_id = ledger.write(_entry(prompt="yes", session_id=session_id))
        stands = json.loads(ledger.read_record(entry_id))["metadata"]["prompt"]
        return str(stands["$content"])

    assert commitment("SES-ONE11111") == commitment("SES-ONE11111")
    assert commitment("SES-ONE11111") != commitment("SES-TWO22222")
    assert commitment("") != commitment("")  # without a session nothing is shared


def test_a_growing_conversation_costs_space_linear_in_its_length(ledger: LedgerClient) -> None:
    messages: list[dict[str, str]] = []
    for turn in range(60):
        messages.append({"role": "user", "content": f"question {turn}"})
        ledger.write(_entry(prompt=list(messages), session_id="SES-GROWING1"))
        messages.append({"role": "assistant", "content": f"answer {turn}"})
    ((contents,),) = ledger.select("SELECT count(*) FROM contents")
    ((steps,),) = ledger.select("SELECT count(*) FROM message_steps")
    assert contents == steps == 2 * 60 - 1


def test_large_values_are_compressed_and_small_ones_are_plain_text(ledger: LedgerClient) -> None:
    ledger.write(_entry(prompt="small and readable", response="x" * 50_000))
    rows = ledger.select("SELECT codec, value, bytes FROM contents ORDER BY bytes")
    assert rows[0] == ("text", "small and readable", 20)
    if ledger.location.startswith("postgresql"):  # which compresses by itself
        ((stored,),) = ledger.select("SELECT min(-pg_column_size(value)) FROM contents")
        assert -stored < 1_000
    else:
        assert rows[1][0] == "text+zlib"
        assert len(rows[1][1]) < 1_000
    assert ledger.read("LED-00000000").metadata["response"] == "x" * 50_000


@given(numbers.map(float) | st.floats(-1e-3, 1e-3))
def test_a_number_is_written_as_the_reference_encoder_writes_it(value: float) -> None:
    assert number_text(value) == rfc8785.dumps(value).decode()
