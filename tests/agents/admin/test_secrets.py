"""Keys are readable through none of ADMIN's tools, and what is long fits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st

from remit.agents import RECALL, Redactor
from remit.agents.admin import HIDDEN
from remit.agents.admin.redaction import redact_assignments
from remit.gateway.auth import KeyStore
from remit.ledger import EVENTS, LedgerEntry
from tests.agents.admin.conftest import Office
from tests.support.secrets import KEYS
from tests.support.wire import message

Offices = Callable[..., Office]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


def test_every_tool_may_run_again_and_says_what_it_takes(office: Offices) -> None:
    it = office(message("hello"))
    settings = it.runtime.loaded.settings.tools
    tools = it.tools(settings)
    allowed = it.runtime.loaded.settings.chat.tools_allowed
    assert {tool.tool_id for tool in tools} == {*allowed, RECALL}
    labels = [tool.label for tool in tools]
    assert len(set(labels)) == len(labels)
    for tool in tools:
        assert tool.on_unknown == "retry"
        assert tool.describe is not None
        assert tool.examples
        assert tool.input_schema["additionalProperties"] is False


def test_a_hosts_admin_sees_nothing_of_its_tenants(office: Offices) -> None:
    it = office(message("hello"))
    place = it.root / "tenants" / "acme"
    place.mkdir(parents=True)
    (place / "remit.toml").write_text("# of a tenant")
    (it.root / "notes.txt").write_text("of the host")
    for path in ("tenants/acme/remit.toml", "./tenants/acme/remit.toml"):
        assert "outside what may be read" in it.error("read_file", path=path)
    assert "outside what may be read" in it.error("list_files", path="tenants")
    for tool_id in ("read_file", "list_files"):
        refused = it.error(tool_id, path="x" * 5000)
        assert "is not a usable path" in refused
        assert str(it.root) not in refused
    listed = {one["path"] for one in it.output("list_files")["files"]}
    assert "notes.txt" in listed
    assert not any("tenants" in path for path in listed)


# -- whole entries -----------------------------------------------------------------------


def test_what_is_too_long_is_cut_and_named(office: Offices) -> None:
    it = office(message("hello"))
    told = {"prompt": "p" * 50_000, "response": "short", "session_id": "SES-LONG0001"}
    entry = it.runtime.ledger.write(LedgerEntry("EXCHANGE", "S", "OK", "r", metadata=told))
    output = it.output("query_ledger_full", entry_id=entry, most=4096)
    (shown,) = output["entries"]
    assert shown["id"] == entry
    assert shown["metadata"]["response"] == "short"
    assert shown["metadata"]["prompt"].startswith("ppp")
    assert "more characters]" in shown["metadata"]["prompt"]
    assert output["cut"] == ["entries.0.metadata.prompt"]
    assert "ledger show" in output["note"]


def test_what_was_erased_is_said_to_be(office: Offices) -> None:
    it = office(message("hello"))
    ledger = it.runtime.ledger
    metadata = {"user_message": "my secret wish", "session_id": "SES-GONE0001"}
    entry = ledger.write(LedgerEntry("TURN_RECORDED", "SES-GONE0001", "D", "r", metadata=metadata))
    ledger.erase(entry, reason="asked to")
    (shown,) = it.output("query_ledger_full", entry_id=entry)["entries"]
    assert list(shown["metadata"]["user_message"]) == ["$erased"]


# -- secrets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "use sk-ant-api03-abcdefghijklmnop please",
        'api_key = "hunter2-hunter2"',
        '{"api_key": "hunter2-hunter2"}',
        '{\\"password\\": \\"hunter2-hunter2\\"}',
        "MY_TOKEN=hunter2-hunter2",
        "postgresql://remit:hunter2-hunter2@db/remit",
        "-----BEGIN PRIVATE KEY-----\nhunter2-hunter2\n-----END PRIVATE KEY-----",
        "PRIVATE+KEY+example.org/log+aabbccdd+hunter2-hunter2",
        "it is told-by-config",
        "https://host/path?token=hunter2-hunter2&page=2",
        *KEYS,
    ],
)
def test_secrets_in_texts(text: str) -> None:
    shown = Redactor(["told-by-config"]).text(text)
    assert HIDDEN in shown
    for secret in ("hunter2", "sk-ant", "told-by-config", *KEYS):
        assert secret not in shown


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("per_token = 0.0000025", False), ('"max_token": 4096,', False),
        ("turn_token: 1e-6", False),
        ("primary_key: true", False), ("sort_key = 3", False), ("api_key = null", False),
        ("token = 12345678901234567890", True), ("password = 1234", True), ("secret: 5", True),
        ("api_key = 5f6a", True), ('key = "4096"', True), ("token = 4096abc", True),
        ("api_key = 'hunter2'", True), ('openai = { api_key = "hunter2", kind = "o" }', True),
        ('api_key = """\nhunter2\n"""', True), ("password: hunter2", True),
    ],
)  # fmt: skip
def test_a_file_shows_numbers_and_hides_keys(text: str, hidden: bool) -> None:
    shown = Redactor().text(redact_assignments(text))
    assert (HIDDEN in shown) == hidden
    assert "hunter2" not in shown
    assert hidden or shown == text


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ({"token": "hunter2"}, True), ({"bot_token": "hunter2"}, True),
        ({"clientSecret": "hunter2"}, True), ({"accessToken": "hunter2"}, True),
        ({"authtoken": "hunter2"}, True), ({"x-refresh_token": "hunter2"}, True),
        ({"page_token": "two"}, False), ({"nextPageToken": "two"}, False),
        ({"token": " hunter", "logprob": -0.5}, False), ({"tokens": "12"}, False),
    ],
)  # fmt: skip
def test_values_under_a_secrets_name(value: dict[str, Any], hidden: bool) -> None:
    shown = Redactor().value(value)
    assert (HIDDEN in shown.values()) == hidden
    assert hidden or shown == value


@given(JSON)
def test_redactor_changes_nothing_but_secrets(value: Any) -> None:
    redactor = Redactor(["a-well-known-secret"])
    secret = {"said": ["a-well-known-secret"], "authorization": "Bearer x", "rest": value}
    shown = redactor.value(secret)
    assert b"well-known" not in orjson.dumps(shown)
    assert shown["authorization"] == HIDDEN
    assert redactor.value(shown) == shown


def test_no_tool_gives_a_key_away(office: Offices, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's key, a database's password, the ledger's key and a virtual key."""
    monkeypatch.setenv("VENDOR_KEY", "vendor-3f9a")
    it = office(
        message("the key is sk-secret, and vendor-3f9a"),
        **{
            "providers.mine": {"kind": "openai", "base_url": "http://u:p4ss@h/v1",
                               "api_key": "plain-77aa", "api_key_env": "VENDOR_KEY"},
            "mcp.shop": {"command": "shop", "args": ["--token", "shop-51bc", "--fast"],
                         "env": {"SHOP": "env-90de"}},
        },
    )  # fmt: skip
    ledger = it.runtime.ledger
    with KeyStore(ledger) as keys:
        virtual = keys.create("ann").key
    signer = (it.root / "HOT" / "keys" / "ledger.key").read_text().strip()
    with it.runtime.session() as conversation:
        conversation.turn(f"keys: plain-77aa {virtual} {signer}")
    session = conversation.session_id
    (it.root / "notes.txt").write_text(f"nothing but plain-77aa and {signer} in here")
    secrets = ["sk-secret", "vendor-3f9a", "p4ss", "plain-77aa", "shop-51bc", "env-90de", virtual,
               signer]  # fmt: skip
    outputs = [
        it.output("show_runtime_config"),
        it.output("read_file", path="notes.txt"),
        it.output("reconstruct_session", session_id=session),
        it.output("trace_prompt_journey", session_id=session),
        it.output("session_overview", session_id=session),
        *(it.output("query_ledger_full", event_type=name, max_entries=20) for name in EVENTS),
        *(it.output("query_ledger", event_type=name) for name in EVENTS),
    ]
    text = orjson.dumps(outputs).decode()
    assert HIDDEN in text
    for secret in secrets:
        assert secret not in text, secret
    assert "keys: " in text
    assert "--fast" in text


def test_the_configuration_is_told_with_its_sources(office: Offices) -> None:
    it = office(message("hello"), **{"worker.turn_limit": 7})
    told = it.output("show_runtime_config")
    rows = {row["key"]: row for row in told["settings"]}
    assert told["count"] == len(rows) == len(list(it.runtime.loaded.rows()))
    assert (rows["worker.turn_limit"]["value"], rows["worker.turn_limit"]["source"]) == (7, "flag")
    assert rows["gateway.timeout_ms"]["source"] == "default"
    assert rows["providers.anthropic.api_key"]["value"] in ("", "**********", HIDDEN)
    only = it.output("show_runtime_config", section="worker")["settings"]
    assert {row["key"].partition(".")[0] for row in only} == {"worker"}
    assert "no setting wurker" in it.error("show_runtime_config", section="wurker")
    assert "note" in it.output("show_runtime_config", most=4096)


def test_paths_lead_to_no_secret(office: Offices, tmp_path: Path) -> None:
    paths = [
        "HOT/keys/ledger.key", "./HOT/keys", "HOT/keys/../keys/ledger.key", "ledger.db",
        "ledger.db-wal", ".env", ".env.local", "sub/.env", "sub/own.pem", "chat_history",
        "sub/key-link", "sub/dir-link/ledger.key", "../root-twin/secret.txt", "sub/up/secret.txt",
        "sub/../../root-twin/secret.txt", "/proc/self/environ", "sub/../HOT/keys/./ledger.key",
    ]  # fmt: skip
    it = office(message("hello"))
    twin = tmp_path / "root-twin"
    twin.mkdir()
    (twin / "secret.txt").write_text("outside")
    sub = it.root / "sub"
    sub.mkdir()
    for name in (".env", ".env.local", "chat_history", "sub/.env", "sub/own.pem"):
        (it.root / name).write_text("inside")
    (sub / "key-link").symlink_to(it.root / "HOT" / "keys" / "ledger.key")
    (sub / "dir-link").symlink_to(it.root / "HOT" / "keys")
    (sub / "up").symlink_to(twin)
    for path in paths:
        assert (it.root / path).exists(), path
        for tool in ("read_file", "list_files"):
            result = it.run(tool, path=path)
            assert result.status == "error", (tool, path, result.output)
    listed = {row["path"] for row in it.output("list_files")["files"]}
    assert not {name for name in listed if "key" in name or ".env" in name or "secret" in name}


def test_only_texts_of_the_root_are_read(office: Offices) -> None:
    it = office(message("hello"))
    (it.root / "sub").mkdir()
    (it.root / "sub" / "note.txt").write_text("a note")
    assert it.output("read_file", path="sub/note.txt")["text"] == "a note"
    (it.root / "other.txt").write_text("password: hunter2\nMY_TOKEN=hunter2\n")
    assert "hunter2" not in it.output("read_file", path="other.txt")["text"]
    (it.root / "binary").write_bytes(b"\xff\xfe")
    os.mkfifo(it.root / "pipe")
    for path in ("/etc/passwd", "no.txt", "", "sub", "binary", "pipe", "\x00", "x" * 5000,
                 "~root/.ssh/id_rsa"):  # fmt: skip
        assert it.error("read_file", path=path)
    listed = [row["path"] for row in it.output("list_files")["files"]]
    assert {"binary", "other.txt", "sub/note.txt"} <= {*listed}
    assert "pipe" not in listed


# -- fitting -----------------------------------------------------------------------------


_NAMES = ["secret", "api_key", "password", "a", "x-token"]
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12)
    | st.sampled_from(["hunter2hunter2", 'say "hunter2hunter2"', "a\\b", "sk-" + "a" * 20,
                       "-----BEGIN PRIVATE KEY-----\nMIIB", "https://u:p@h/", "{x}", "[y", "it's"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(_NAMES),
                      inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=4), st.integers(0, 2))
def test_a_json_document_is_one_after_redaction(document: dict[str, Any], depth: int) -> None:
    text = json.dumps(document)
    for _ in range(depth):  # a document within a text of another
        text = json.dumps({"said": text})
    redactor = Redactor()
    for shown in (redactor.text(text), redact_assignments(text)):
        found = json.loads(shown)
        for _ in range(depth):
            found = json.loads(found["said"])
        assert found.keys() == document.keys()
    for name, value in document.items():
        if name in ("secret", "password", "api_key") and value == "hunter2hunter2":
            assert value not in json.dumps(json.loads(redactor.text(json.dumps({name: value}))))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"api_key": "abc123def"}', '{"api_key": "[hidden]"}'),
        (r'{"said": "{\"api_key\": \"abc123def\"}"}', r'{"said": "{\"api_key\": \"[hidden]\"}"}'),
        ('{"secret": 12345, "a": 1}', '{"secret": "[hidden]", "a": 1}'),
        ('{"secret": ["a", "b"], "a": 1}', '{"secret": "[hidden]", "a": 1}'),
        ("password = 'it''s'", "password = '[hidden]'"),
        ("secret: [hunter2", "secret: [hidden]"),
    ],
)
def test_the_quotes_of_a_hidden_value_stay(text: str, expected: str) -> None:
    assert Redactor().text(text).startswith(expected)
