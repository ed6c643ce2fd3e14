"""What a user, a developer or a provider gives: repaired or refused at once, in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remit import File, Runtime
from remit.kernel.errors import RemitError
from remit.runtime import Conversation, Schedule
from remit.testing import ScriptedModel
from remit.tools import Tool
from tests.support.roots import new_root
from tests.support.soak import sample
from tests.support.wire import Raw, Step, completion, completion_stream, serve

HALF = "hi \ud83d"
WHOLE = "hi \ufffd"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    place = tmp_path_factory.mktemp("outside") / "root"
    new_root(place)
    with Runtime.open(place, providers={"s": ScriptedModel(*["ok"] * 100)}) as opened:
        yield opened


def test_half_an_emoji_of_a_user_is_repaired_and_the_session_goes_on(runtime: Runtime) -> None:
    session = runtime.agent("a", model="s").session()
    for said in (HALF, [HALF, "there"], ["look", File(b"abc", "text/plain", HALF)], "hello"):
        result = session.turn(said)
        assert (result.response, result.error_code) == ("ok", "")
    said = [entry.metadata["user_message"] for entry in runtime.ledger.query(
        event_type="TURN_RECORDED", session_id=session.session_id)]  # fmt: skip
    assert said == [WHOLE, f"{WHOLE}\nthere", f"look\n[{WHOLE}: text/plain, 3 bytes]", "hello"]
    for task in (HALF, {"user_input": HALF}):
        assert session.work(task).state == "completed"
    assert session.feedback(1.0, reason=HALF).reason == WHOLE
    assert runtime.ledger.verify().verified


def test_half_an_emoji_in_submitted_work_is_repaired(runtime: Runtime) -> None:
    order = runtime.agent("a", model="s").submit(HALF)
    (entry,) = runtime.ledger.query(event_type="ORDER_SUBMITTED", submission_id=order.order_id)
    assert entry.metadata["task"] == WHOLE


_begun: dict[int, Conversation[Any]] = {}


def _session(runtime: Runtime) -> Conversation[Any]:
    """Return the one session in which nothing is to be recorded."""
    if id(runtime) not in _begun:
        _begun[id(runtime)] = runtime.agent("a", model="s").session()
    return _begun[id(runtime)]


Refused = Callable[[Runtime], Any]
_REFUSED: list[Refused] = [
    *(lambda runtime, name=name, bad=bad: runtime.agent("a", model="s").session(**{name: bad})
      for name in ("user", "subject_id") for bad in (HALF, "a\0b", 3)),
    *(lambda runtime, name=name: runtime.agent("a", model="s").submit("do", **{name: HALF})
      for name in ("user", "subject_id", "key", "queue", "by", "for_key")),
    lambda runtime: runtime.approvals.delegate(
        by="ann", to=HALF, until=datetime.now(UTC) + timedelta(hours=1)
    ),
    lambda runtime: _session(runtime).work("do", key=HALF),
    lambda runtime: _session(runtime).feedback(1.0, by=HALF),
    lambda runtime: Schedule(runtime.agent("a", model="s"), HALF, "do", every_s=60),
    lambda runtime: Schedule(runtime.agent("a", model="s"), "s", "do", every_s=60, user=HALF),
    *(lambda runtime, name=name, bad=bad: runtime.agent(**{"agent_id": "a", name: bad})
      for name in ("agent_id", "instructions", "tools", "mcp", "approve", "contract", "contracts",
                   "output_type", "model", "planner", "acceptance", "classify", "verify",
                   "max_retries", "shares_sessions", "session_tokens", "session_usd",
                   "order_tokens", "order_usd", "turn_limit", "timeout_s", "context_tokens")
      for bad in (object(), HALF, [None], {"no": 1}, b"a")),
    lambda runtime: runtime.agent(""),
    lambda runtime: runtime.agent("a" * 201),
    lambda runtime: Tool("a", None, {"type": "object"}, print),  # type: ignore[arg-type]
    lambda runtime: Tool("a", "A.", None, print),  # type: ignore[arg-type]
    lambda runtime: Tool("a", "A.", {"title": HALF}, print),
    lambda runtime: Tool("a", "A.", {}, None),  # type: ignore[arg-type]
    lambda runtime: File(b"a", "text/plain", None),  # type: ignore[arg-type]
    lambda runtime: File(b"a", "text/pl\ud83d"),
]  # fmt: skip


@pytest.mark.soak
def test_what_cannot_be_used_is_refused_in_one_sentence(runtime: Runtime) -> None:
    _session(runtime)
    before = runtime.ledger.count()
    for number in sample(range(len(_REFUSED)), 40):
        with pytest.raises(RemitError) as refused:
            _REFUSED[number](runtime)
        assert refused.value.message.endswith("."), number
        assert str(refused.value).isprintable(), number
    assert runtime.ledger.count() == before


def test_names_in_an_iterator_are_read_once(runtime: Runtime) -> None:
    def pay() -> str:
        """Pay."""
        return "paid"

    with pytest.raises(RemitError, match="is to be approved"):
        runtime.agent("a", tools=[pay], approve=iter(["charge"]))
    agent = runtime.agent("a", model="s", tools=iter([pay]), approve=iter(["pay"]))
    assert agent.tools == ("pay",)
    assert agent._shape.answer.approve == ("pay",)


_BROKEN: list[Step] = [
    Raw(b"<html>oops</html>", content_type="text/html"),
    Raw(b"<html>oops</html>"),
    Raw(b""),
    Raw(b"{}"),
    Raw(b'{"id": "x", "choices": []}'),
    Raw(b'{"error": {"message": "overloaded"}}'),
    completion_stream(completion("abcdefgh"), cut_after=2),
    completion_stream(completion("abcdefgh"), cut_after=3),
]


@pytest.mark.soak
def test_a_provider_that_fails_is_not_put_to_the_model_as_its_answer(tmp_path: Path) -> None:
    new_root(tmp_path / "root")
    script: list[Step] = []
    with serve(lambda _: script.pop(0)) as server:
        flags = {
            "providers.odd.kind": "openai", "providers.odd.base_url": f"{server.url}/v1",
            "providers.odd.default_model": "m", "model.default": "odd", "gateway.max_retries": 0,
            "gateway.failure_threshold": 1000,
        }  # fmt: skip
        with Runtime.open(tmp_path / "root", flags=flags) as runtime:
            cases = [(broken, streams) for broken in _BROKEN for streams in (False, True)]
            for broken, streams in sample(cases, 6):
                script[:] = [broken, completion(""), completion("fine")]
                server.calls.clear()
                session = runtime.agent("a", max_retries=2).session()
                if streams:
                    *_, last = session.stream("go")
                    result = last.result  # type: ignore[union-attr]
                else:
                    result = session.turn("go")
                assert result.response == "fine"
                first, again, after = (call.body["messages"] for call in server.calls)
                assert again == first, broken
                assert "the answer is empty" in str(after)  # the model's own answer is rejected
