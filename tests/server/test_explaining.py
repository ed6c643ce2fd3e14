"""Any call told back: by which name it was asked for, what went out, who failed, what it cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import NotFoundError
from remit.routing import explain
from tests.server.conftest import QUICK
from tests.server.running import Served, new_session
from tests.support.commands import run_remit

TOML = (
    QUICK
    + """
failure_threshold = 1000
[gateway.fallbacks]
"gpt-4.1" = ["claude-haiku-4-5"]
"gpt-bad@status=500" = ["claude-good"]
"gpt-shut" = ["claude-good"]
[routing.models.fast]
provider = "openai"
served_as = "gpt-4o-mini"
[routing.models.claude-own]
provider = "openai"
[routing.models."gpt-ill@status=503"]
provider = "openai"
abilities = { general = 90 }
[routing.models."gpt-odd@garbage=json"]
provider = "openai"
abilities = { general = 80 }
[routing.routes.late]
models = ["gpt-ill@status=503", "gpt-odd@garbage=json"]
"""
)


def _told(served: Served, entry_id: str) -> dict[str, Any]:
    prefixes = {"gpt-": "openai", "claude-": "anthropic"}
    found = explain(served.ledger, entry_id, prefixes)
    assert found["decision_id"] == ""
    assert found["why"] == found["call"]["why"]
    json.dumps(found)
    call: dict[str, Any] = found["call"]
    return call


def test_a_call_that_went_out_as_it_came(served: Served) -> None:
    key = served.key(models=("gpt-4o-mini",), usd_nano=10**9)
    _, _, headers = served.call("openai", "Hello", token=key.key)
    told = _told(served, headers["x-remit-exchange"])
    assert (told["asked_for"], told["named_by"]) == ("gpt-4o-mini", "prefix")
    assert (told["provider_id"], told["model_id"]) == ("openai", "gpt-4o-mini")
    assert told["key"] == {
        "key_id": key.key_id, "name": told["key"]["name"], "models": ["gpt-4o-mini"],
    }  # fmt: skip
    assert told["changed"] == told["passed_over"] == []
    assert len(told["attempts"]) == 1
    assert told["outcome"] == "success"
    assert told["cost"]["certainty"] == "measured"
    assert 0 < told["cost"]["usd"] <= told["bound"]["usd"]
    assert told["tokens"]["input"] <= told["bound"]["input_tokens"]
    assert told["bound"]["output_tokens"] == 50
    said = " ".join(told["why"])
    assert "unchanged, byte for byte (openai.chat)" in said
    assert "which may use only gpt-4o-mini" in said
    assert _told(served, headers["x-remit-dispatch"]) == told


@pytest.mark.parametrize(
    ("dialect", "model", "how", "word"),
    [
        ("openai", "fast", "registry", "a name in the registry for openai/gpt-4o-mini"),
        ("openai", "openai/gpt-4o-mini", "provider/model", "which gives provider and model"),
        ("openai", "nobodys-model", "default", "no prefix matches"),
        ("openai", "claude-own", "registry", "a name in the registry for openai/claude-own"),
        ("anthropic", "fast", "registry", "a name in the registry for openai/gpt-4o-mini"),
    ],
)
def test_by_which_name_it_was_asked_for_and_translated(
    served: Served, dialect: str, model: str, how: str, word: str
) -> None:
    _, _, headers = served.call(dialect, "Hello", model=model)
    told = _told(served, headers["x-remit-exchange"])
    said = " ".join(told["why"])
    assert (told["asked_for"], told["named_by"]) == (model, how)
    assert word in told["why"][0]
    if dialect == "anthropic":
        assert (told["wire"], told["translated_from"]) == ("openai.chat", "anthropic.messages")
        assert "translated from anthropic.messages to openai.chat" in said
    elif model not in ("nobodys-model", "claude-own"):
        assert [change["path"] for change in told["changed"]] == ["/model"]
        assert "with these changes: /model (the provider's name of the model)" in said


def test_who_failed_and_who_answered_instead(served: Served) -> None:
    session = new_session()
    status, _, headers = served.call("openai", "Hello", model="gpt-bad@status=500", session=session)
    assert status == 200
    told = _told(served, headers["x-remit-exchange"])
    assert told["asked_for"] == "gpt-bad@status=500"
    assert (told["provider_id"], told["model_id"]) == ("anthropic", "claude-good")
    assert [row["outcome"] for row in told["attempts"]] == ["error", "error", "error", "success"]
    (passed,) = told["passed_over"]
    assert (passed["model_id"], passed["error_code"]) == ("gpt-bad@status=500", "SERVER_ERROR")
    assert told["translated_from"] == "openai.chat"
    said = " ".join(told["why"])
    assert "gpt-bad@status=500 failed (SERVER_ERROR: HTTP 500" in said
    assert "Attempt 3, LED-" in said
    assert "anthropic/claude-good answered in" in said
    first, second, *_ = [entry.id for entry in served.entries("EXCHANGE", session)]
    failed = _told(served, first)
    assert failed["tried_again_by"] == second
    assert f"The call was retried: {second}." in " ".join(failed["why"])


def test_a_key_that_may_not_use_the_model(served: Served) -> None:
    key = served.key(models=("gpt-shut", "claude-good"))
    key_without = served.key(models=("claude-good",))
    assert served.call("openai", "Hello", model="gpt-shut", token=key.key)[0] == 200
    status, _, headers = served.call("openai", "Hello", model="gpt-shut", token=key_without.key)
    assert status == 200
    told = _told(served, headers["x-remit-exchange"])
    assert [row["error_code"] for row in told["passed_over"]] == ["MODEL_NOT_ALLOWED"]
    assert (
        "gpt-shut was skipped (MODEL_NOT_ALLOWED: the key may not use this model)." in told["why"]
    )


def test_a_refused_call_and_what_is_no_call(served: Served) -> None:
    status, _, headers = served.call("openai", "Hello", model="nobody/model")
    assert status == 404
    told = _told(served, headers["x-remit-exchange"])
    assert (told["outcome"], told["error_code"]) == ("rejected", "PROVIDER_NOT_FOUND")
    assert told["why"][-1] == "Nothing was sent, reserved or charged."
    (entry, *_) = served.ledger.query(event_type="KEY_CREATED", limit=1)
    for name, said in ((entry.id, "so it is neither a routing decision nor a model"),
                       ("LED-ffffffff", "no decision 'LED-ffffffff'")):  # fmt: skip
        with pytest.raises(NotFoundError, match=said):
            explain(served.ledger, name)


def test_a_routed_call_that_failed_was_unreadable_and_was_erased(served: Served) -> None:
    session = new_session()
    assert served.call("openai", "Hello", model="late", session=session)[0] == 200  # as received
    *_, failed, last = [entry.id for entry in served.entries("EXCHANGE", session)]
    shown = _run(served, "route", "explain", failed).decode()
    assert "sent the call to openai/gpt-ill@status=503." in shown
    assert "Nothing was charged: the call failed without an answer." in shown
    shown = _run(served, "route", "explain", last).decode()
    said = "put gpt-ill@status=503 first; this is attempt 2, at openai/gpt-odd@garbage=json."
    assert said in shown
    assert "Remit could not read the answer." in shown
    assert "answer not readable" in _run(served, "trace", last).decode()
    assert b" agrees with the record." in _run(served, "route", "replay", last)
    _run(served, "ledger", "erase", failed, "--yes", "--reason", "asked for")
    again = _run(served, "route", "replay", last).decode()  # exit code 0
    assert "cannot be recomputed; content was erased." in again
    assert "prompt of the decision was erased, so it cannot be recomputed." in again


def _run(served: Served, *arguments: str) -> bytes:
    done = run_remit(*arguments, "--root", served.root)
    assert done.returncode == 0, done.stderr
    return done.stdout.encode()


def test_the_command_line_tells_it_and_gives_the_bytes(served: Served, tmp_path: Path) -> None:
    body = (
        b'{"model" : "gpt-4o-mini", "messages":[ {"role":"user","content":"caf\\u00e9"}\n ],'
        b' "max_tokens":50, "x":1e2}'
    )
    status, came, headers = served.ask("POST", "/v1/chat/completions", body)
    assert status == 200
    entry = headers["x-remit-exchange"]
    assert _run(served, "ledger", "show", entry, "--body") == body
    assert _run(served, "ledger", "show", entry, "--answer") == came
    said = _run(served, "route", "explain", entry).decode()
    assert said.startswith(f"{entry} (EXCHANGE, ")
    assert "gpt-4o-mini was requested; names beginning with gpt- go to openai." in said
    told = json.loads(_run(served, "route", "explain", entry, "--json"))
    assert told["call"]["wire"] == "openai.chat"
