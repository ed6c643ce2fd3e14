"""One line a call, that nobody can forge and no secret gets into."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, strategies as st

from remit.kernel.exchange import RouteOutcome
from remit.kernel.secrets import redact_secrets
from remit.server.telemetry import CallLog, set_up_logging
from tests.server.telemetry.calls import call_report, watched_gateway
from tests.support.requests import prompt_request
from tests.support.secrets import KEYS
from tests.support.soak import sample
from tests.support.wire import Raw, completion

Form = Literal["text", "json"]
FORMS: tuple[Form, Form] = ("text", "json")
SECRETS = [  # each with a part of it that must not be seen
    ("sk-remit-" + "a_B-9" * 8, "a_B-9a_B"),
    ("sk-ant-api03-abcdefgh", "abcdefgh"),
    ("rat1.eyJzdWIiOiJhIn0.c2lnbmF0dXJl", "c2lnbmF0"),
    ("Bearer abc.def/ghi+jkl==", "def/ghi"),
    ("bearer  x1y2z3secret", "x1y2z3"),
    ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpw"),
    ("x-api-key: abcdef123", "abcdef12"),
    ("postgresql://remit:hunter2secret@db/remit", "hunter2secret"),
    ("-----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PRIVATE KEY-----", "MC4CAQAw"),
    *((key, key[-12:]) for key in KEYS),
]


@pytest.fixture(autouse=True)
def _own_logger() -> Iterator[None]:
    logger = logging.getLogger("remit")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def _logged(form: Form, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    set_up_logging(level, form, stream=stream)
    return stream


def _read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_call_is_one_line_of_json(tmp_path: Path) -> None:
    stream = _logged("json")
    with watched_gateway(tmp_path, completion("An ANSWER."), CallLog()) as gateway:
        response = gateway.route(prompt_request(prompt="a QUESTION", auth_token="sk-mine-1234"))
    (line,) = _read(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line.pop("latency_ms") == response.latency_ms
    assert line == {
        "level": "info", "logger": "remit.calls", "message": "call ended",
        "outcome": "success", "error_code": "", "provider": "openai", "model": "gpt-test-1",
        "input_tokens": 13, "output_tokens": 5, "attempts": 1,
        "cost_usd": response.cost_incurred, "cost_certainty": "measured",
        "session_id": "SES-TESTTEST", "agent_id": "agent-1", "key_id": "",
        "dispatch_entry_id": response.dispatch_entry_id,
        "exchange_entry_id": response.exchange_entry_id,
    }  # fmt: skip
    for never in ("ANSWER", "QUESTION", "sk-mine"):
        assert never not in stream.getvalue()


@pytest.mark.parametrize("form", FORMS)
def test_a_failure_is_told_without_what_the_error_says(tmp_path: Path, form: Form) -> None:
    stream = _logged(form)
    body = json.dumps({"error": {"message": "your prompt QUESTION is odd"}}).encode()
    with watched_gateway(tmp_path, Raw(body, status=400), CallLog()) as gateway:
        response = gateway.route(prompt_request(prompt="QUESTION"))
    assert response.error_code
    text = stream.getvalue()
    assert "call failed" in text
    assert response.error_code in text
    assert "QUESTION" not in text
    stream = _logged("json", "warning")  # Below the level nothing is said.
    CallLog()(call_report())
    assert stream.getvalue() == ""


def test_text_is_for_people() -> None:
    stream = _logged("text")
    CallLog()(call_report(agent_id="the one", work_order_id=""))
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert " INFO remit.calls: call ended outcome=success provider=openai " in text
    assert ' agent_id="the one" ' in text
    assert "cost_usd=0.25" in text
    assert "error_code" not in text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("secret", "part"), SECRETS)
def test_secrets_are_blotted_wherever_they_come_from(form: Form, secret: str, part: str) -> None:
    assert part in secret
    stream = _logged(form)
    log = logging.getLogger("remit.test")
    log.info("in a message: %s.", secret)
    log.info("in a field", extra={"session_id": secret, "more": {"deep": [secret]}})
    try:
        raise ValueError(f"in an exception: {secret}")
    except ValueError:
        log.exception("failed")
        log.info("again", exc_info=True, stack_info=True)
    CallLog()(call_report(session_id=secret, agent_id=f"x {secret}"))
    text = stream.getvalue()
    assert part not in text
    assert text.count("[secret]") >= 6
    assert "in a message" in text
    assert "ValueError" in text


@given(
    st.text(max_size=50),
    st.dictionaries(
        st.text(min_size=1, max_size=5).map("x_".__add__),
        st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=20), st.binary()),
        max_size=4,
    ),
)
def test_whatever_is_logged_is_one_line_of_json(message: str, extra: dict[str, Any]) -> None:
    stream = io.StringIO()
    handler = set_up_logging("info", "json", stream=stream)
    record = logging.makeLogRecord({"msg": message, "levelname": "INFO", **extra})
    handler.handle(record)
    assert len(stream.getvalue().splitlines()) == 1
    line = json.loads(stream.getvalue(), parse_constant=lambda name: pytest.fail(name))
    assert set(extra) <= set(line)


def test_an_unpriced_call_has_no_cost_and_a_fallback_is_told() -> None:
    stream = _logged("json")
    passed = {"replayed": True, "fallback_from": (("gpt-9", "TIMEOUT"),)}
    CallLog()(call_report(cost_certainty="unpriced", cost_incurred=0.0, **passed))
    (line,) = _read(stream)
    assert line["cost_usd"] is None
    assert line["replayed"] is True
    assert line["key_id"] == "KEY-1"
    assert line["fallback_from"] == {"gpt-9": "TIMEOUT"}


@pytest.mark.soak
def test_blotting_takes_time_in_proportion() -> None:
    starts = ["sk-", "Bearer ", "a://", "-----BEGIN ", "rat1.", "x-api-key ", "Basic" + " " * 9]
    beginnings = (key[:size] for key in KEYS for size in (4, 5, 12, 24))
    marked = (f"{key}{mark}" for key in KEYS for mark in "-_.")
    for start in sample([*starts, *beginnings, *marked], 5):
        redact_secrets(start * 100_000)  # the test's time limit is the bound


FORGERIES = [
    "x\n2026-01-01T00:00:00.000Z INFO remit.calls: call ended outcome=success",
    "x\r\nforged", "x\x1b[2K\x1b[1Aforged", "x\u2028forged", "x\x85forged", "x\u202eforged",
    "x\x00forged", "x\ud800forged", 'x" outcome="success', "x outcome=success",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_no_id_forges_a_line(form: Form, forgery: str) -> None:
    stream = _logged(form)
    failed = {"outcome": RouteOutcome.REJECTED, "error_code": "INVALID_INPUT"}
    CallLog()(call_report(**failed, session_id=forgery, agent_id=forgery, model_id=forgery))
    logging.getLogger("remit.test").info("about %s", forgery)
    text = stream.getvalue()
    assert len(text.splitlines()) == 2
    assert text.count("\n") == 2
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e\ud800]", text)
    line = text.splitlines()[0]
    if form == "json":
        assert json.loads(line)["outcome"] == "rejected"
    else:
        assert re.findall(r" outcome=(\w+)", re.sub(r'"(?:[^"\\]|\\.)*"', "", line)) == ["rejected"]


@pytest.mark.parametrize("form", FORMS)
def test_an_exception_forges_no_line_either(form: Form) -> None:
    stream = _logged(form)
    try:
        raise ValueError("x\n2026-01-01T00:00:00.000Z INFO forged\r2026 forged")
    except ValueError:
        logging.getLogger("remit.test").exception("failed")
    lines = stream.getvalue().splitlines()
    assert len([line for line in lines if not line.startswith("    ")]) == 1


def test_no_field_passes_for_one_of_the_records_own_and_odd_arguments_are_shown() -> None:
    stream = _logged("json")
    logging.getLogger("remit.test").warning("true", extra={"level": "debug", "time": "never"})
    record = logging.LogRecord("remit.x", 30, "", 1, "%d of %d", ("sk-12345678",), None)
    logging.getLogger("remit").handle(record)
    own, odd = _read(stream)
    assert own["level"] == "warning"
    assert own["time"] != "never"
    assert odd["message"] == "%d of %d ('[secret]',)"
