"""ADMIN's tools: they read, and stay inside the root."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from remit.agents import admin_tools
from remit.agents.sessions import SessionManager
from remit.agents.tools import ToolDispatcher
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient, LedgerEntry


@pytest.fixture
def admin(ledger: LedgerClient, tmp_path: Path) -> ToolDispatcher:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "note.txt").write_text("a note")
    (root / "remit.toml").write_text('[providers.openai]\napi_key = "sk-secret"\nkind = "openai"\n')
    (root / "keys").mkdir()
    (root / "keys" / "ledger.key").write_text("secret")
    (root / "binary").write_bytes(b"\xff\xfe")
    outside = tmp_path / "root-sibling"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (root / "link.txt").symlink_to(outside / "secret.txt")
    (root / "dirlink").symlink_to(outside)
    os.mkfifo(root / "pipe")
    settings = default_settings().tools
    return ToolDispatcher(admin_tools(ledger, root, settings), settings)


def test_files_of_the_root_are_read(admin: ToolDispatcher) -> None:
    assert admin.execute("read_file", {"path": "sub/note.txt"}).output["text"] == "a note"
    listed = admin.execute("list_files", {}).output
    assert [row["path"] for row in listed["files"]] == ["binary", "remit.toml", "sub/note.txt"]


@pytest.mark.parametrize(
    "text",
    [
        'api_key = "sk-secret"',
        "api_key = 'sk-secret'",
        'openai = { api_key = "sk-secret", kind = "openai" }',
        'api_key = """\nsk-secret\n"""',
        '{"api_key": "sk-secret", "kind": "openai"}',
        "password: sk-secret",
        "MY_TOKEN=sk-secret",
    ],
)
def test_keys_in_any_clothes(admin: ToolDispatcher, tmp_path: Path, text: str) -> None:
    (tmp_path / "root" / "other.txt").write_text(text)
    assert "sk-secret" not in admin.execute("read_file", {"path": "other.txt"}).output["text"]


@pytest.mark.parametrize(
    "path",
    ["../root-sibling/secret.txt", "/etc/passwd", "link.txt", "dirlink/secret.txt",
     "keys/ledger.key",
     "sub/../../root-sibling/secret.txt", "../root-sibling", "no.txt", "", "sub", "binary", "pipe",
     "\x00", "x" * 5000, "~root/.ssh/id_rsa"],
)  # fmt: skip
def test_nothing_else_is(admin: ToolDispatcher, path: str) -> None:
    result = admin.execute("read_file", {"path": path})
    assert result.status == "error"
    assert "secret" not in result.error.replace("secret.txt", "")


def test_query_ledger_is_cut_at_the_boundary(admin: ToolDispatcher, ledger: LedgerClient) -> None:
    for number in range(12):
        metadata = {"prompt": "whole text", "b": 1, "a": number}
        ledger.write(LedgerEntry("EXCHANGE", "S", "OK", "r" * 500, metadata=metadata))
    output = admin.execute("query_ledger", {"event_type": "EXCHANGE"}).output
    assert (output["status"], output["count"]) == ("ok", 10)
    first = output["entries"][0]
    assert set(first) == {
        "id", "event_type", "submission_id", "decision", "reason", "timestamp", "metadata_keys",
    }  # fmt: skip
    assert first["id"] == "LED-0000000b"
    assert len(first["reason"]) == 200
    assert first["metadata_keys"] == ["a", "b", "prompt"]
    assert admin.execute("query_ledger", {"max_entries": 3}).output["count"] == 3
    assert admin.execute("query_ledger", {"max_entries": 0}).status == "error"


def test_sessions_and_verification(admin: ToolDispatcher, ledger: LedgerClient) -> None:
    session = SessionManager(ledger)
    session.start()
    asyncio.run(session.aadd_turn("hi", "hello"))
    (row,) = admin.execute("list_sessions", {}).output["sessions"]
    assert (row["session_id"], row["turns"], row["ended"]) == (session.session_id, 1, False)
    session.end()
    (row,) = admin.execute("list_sessions", {}).output["sessions"]
    assert row["ended"]
    assert admin.execute("verify_ledger", {}).output["verified"] is True
