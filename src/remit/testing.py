"""Tools for testing agents: models from a script or a ledger, quick roots, checks of the record.

With pytest, ``pytest_plugins = ["remit.testing"]`` in ``conftest.py`` provides the fixtures
``remit_root``, ``remit_runtime`` and ``remit_replay``. Remit itself uses nothing of this module,
and pytest is imported only by tests. The assertions have messages of their own:
PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import tempfile
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from pydantic import BaseModel
from pydantic_core import to_json

from remit.agents.tools import Context, Tool, ToolError, ToolResult, tool
from remit.gateway import Recording, neutral_text
from remit.kernel.canonical import canonical_json, exact_json, sha256_hex
from remit.kernel.errors import RemitError
from remit.kernel.exchange import ModelCapabilities, TextSink, text_of
from remit.kernel.root import Root
from remit.ledger import Erased, LedgerClient, LedgerEntry
from remit.providers import ProviderError, ProviderRequest, ProviderResponse
from remit.runtime import Runtime, make_root

__all__ = ["RecordChecks", "RecordedModel", "ReplayedRun", "ScriptedModel", "ToolUse", "new_root"]


@dataclass(frozen=True)
class ToolUse:
    """A tool call that a scripted model makes.

    Attributes:
        tool_id: id of the tool.
        arguments: arguments of the call.
    """

    tool_id: str
    arguments: Mapping[str, Any]


Answer = (
    str
    | ToolUse
    | Sequence[ToolUse]
    | Mapping[str, Any]
    | BaseModel
    | Exception
    | Callable[[ProviderRequest], Any]
)
"""A text; tool calls; data, given as JSON; an error to raise; or a function that gives one."""


class ScriptedModel:
    """A provider whose model answers from a script, in order.

    Args:
        answers: texts, data (a mapping, list, dataclass or Pydantic model), a use of a tool or a
            list of uses, exceptions to raise, or functions that take the request and return one of
            these. A call after the last one fails.
        native_tools: True if the model takes tool definitions.
        structured_output: True if the model can be held to a JSON Schema.
        input_tokens: reported for each call.
        output_tokens: reported for each call.

    Attributes:
        requests: the requests received, in order.
    """

    default_model = "scripted"

    def __init__(
        self,
        *answers: Answer | Any,
        native_tools: bool = True,
        structured_output: bool = True,
        input_tokens: int = 10,
        output_tokens: int = 5,
    ) -> None:
        self._answers = deque(answers)
        self._able = ModelCapabilities(native_tools, structured_output)
        self._usage = (input_tokens, output_tokens)
        self.requests: list[ProviderRequest] = []

    def capabilities(self, model_id: str) -> ModelCapabilities:
        """Return the capabilities that the model was made with."""
        return self._able

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """Note the request; return the next answer of the script, with the fixed token numbers.

        A function is called with the request; its result is the answer. Data becomes JSON. A text
        or data is also passed to ``on_text``, line by line. Uses of tools give blocks without text
        and the finish reason ``tool_use``.

        Raises:
            ProviderError: ``INVALID_REQUEST``: the script has ended.
            Exception: the scripted error, or one of the function.
        """
        self.requests.append(request)
        if not self._answers:
            raise ProviderError(
                "INVALID_REQUEST", f"the script has no answer to call {len(self.requests)}"
            )
        answer: Any = self._answers.popleft()
        if callable(answer) and not isinstance(answer, BaseModel):
            answer = answer(request)
        if isinstance(answer, Exception):
            raise answer
        uses = [answer] if isinstance(answer, ToolUse) else answer
        if isinstance(uses, list | tuple) and uses and isinstance(uses[0], ToolUse):
            number = len(self.requests)
            blocks = tuple(
                {"type": "tool_use", "id": f"use_{number}_{index}", "name": use.tool_id,
                 "input": dict(use.arguments)}
                for index, use in enumerate(uses)
            )  # fmt: skip
            return ProviderResponse(
                "", request.model_id, *self._usage, finish_reason="tool_use", content_blocks=blocks
            )
        is_data = isinstance(answer, Mapping | BaseModel | list) or is_dataclass(answer)
        text = to_json(answer).decode() if is_data else str(answer)
        return _said(text, on_text, ProviderResponse(text, request.model_id, *self._usage))


class RecordedModel:
    """A provider that gives each request the answer that a ledger recorded for the same messages.

    Tools, model and limits of the request are not compared. The answers of successful calls are
    read when the object is made. The ledger is only read; one given by its path is closed then.

    Args:
        ledger: a ledger client, such as ``runtime.ledger``, or the path of a ledger.
        session_id: the session to read; all sessions if left out.

    Raises:
        LedgerError: the ledger does not exist or cannot be read.
    """

    default_model = "recorded"

    def __init__(self, ledger: LedgerClient | str | Path, session_id: str | None = None) -> None:
        which: dict[str, Any] = {} if session_id is None else {"session_id": session_id}
        self._answers: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        with ExitStack() as stack:
            if not isinstance(ledger, LedgerClient):
                ledger = stack.enter_context(LedgerClient(str(ledger), create=False))
            for entry in ledger.query(event_type="EXCHANGE", outcome="success", **which):
                self._answers[str(entry.metadata["context_hash"])].append(entry.metadata)

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """Return the recorded answer to equal messages; repeated requests get the answers in order.

        Beyond the record the last answer is returned again. The text is also passed to ``on_text``,
        line by line.

        Raises:
            ProviderError: ``INVALID_REQUEST``: no answer to these messages is recorded, or they
                were erased.
        """
        parts = [canonical_json(message) for message in request.messages]
        digest = hashlib.sha256(b"[" + b",".join(parts) + b"]").hexdigest()
        known = self._answers.get(digest)
        if not known:
            last = text_of(request.messages[-1]["content"])[:200]
            raise ProviderError("INVALID_REQUEST", f"the record has no answer to this: {last!r}")
        data = known.popleft() if len(known) > 1 else known[0]
        return _said(data["response"], on_text, _response(data))


class ReplayedRun:
    """A recorded run of agents, as the provider and the tools of the same program.

    Give the run as a provider, and give the agents ``run.tools(…)``. Each request is answered as
    recorded and each tool returns its recorded result without running, so that the program repeats
    the run whatever its clocks and random numbers say. Requests of parallel work may come in any
    order. The ledger is only read.

    Args:
        ledger: a ledger client, such as ``runtime.ledger``, or the path of a ledger.
        run: a session, with the sessions of its sub-agents, or a work order.
        structured_output: True if the recorded model could be held to a JSON Schema.

    Attributes:
        recording: the calls, and the first difference from them.

    Raises:
        NotFoundError: the ledger has no call of this run.
        RemitError: a call or a tool's result was erased.
    """

    default_model = "replayed"

    def __init__(
        self, ledger: LedgerClient | str | Path, run: str, *, structured_output: bool = True
    ) -> None:
        if not isinstance(ledger, LedgerClient):
            ledger = LedgerClient(str(ledger), create=False)
            weakref.finalize(self, ledger.close)
        self.recording = Recording(ledger, run)
        self._results: dict[str, list[tuple[str, int, ToolResult]]] = defaultdict(list)
        texts, used = self._read_calls(ledger)
        began: set[str] = set()
        for entry in self.recording.entries("TOOL_INTENT", "TOOL_CALL"):
            meta = entry.metadata
            if entry.event_type == "TOOL_INTENT":
                began.add(meta["idempotency_key"])
                continue
            if isinstance(meta["result"], Erased) or isinstance(meta["arguments"], Erased):
                raise RemitError(f"The result of a tool in {entry.id} was erased.")
            if meta["idempotency_key"] not in began:  # A refusal, or an earlier result once more.
                continue
            exchange, _, number = meta["idempotency_key"].rpartition("/")
            place = exchange.rpartition("/")[2], int(number)
            # The record sorts the members of a result; the model saw them in the tool's order.
            shown = texts.get(used.get(place, ""))
            output = shown if shown == meta["result"] else meta["result"]
            result = ToolResult(
                meta["status"], output, meta["tool_error"], bool(meta.get("fault")),
                meta.get("note", ""),
            )  # fmt: skip
            self._results[_named(meta["tool_id"], meta["arguments"])].append((*place, result))
        for results in self._results.values():
            results.sort(key=lambda one: one[:2])
        self._able = ModelCapabilities(self._has_tools, structured_output)

    def _read_calls(
        self, ledger: LedgerClient
    ) -> tuple[dict[str, Any], dict[tuple[str, int], str]]:
        """Return tool results as the model saw them, and the ids of tool calls.

        The results are keyed by these ids, and the ids by the ``EXCHANGE`` and the call's number.
        """
        texts: dict[str, Any] = {}
        used: dict[tuple[str, int], str] = {}
        self._has_tools = False
        for call in self.recording.calls:
            meta = ledger.read(call.exchange_entry_id).metadata
            self._has_tools |= bool(meta.get("tools"))
            uses = [one for one in meta.get("content_blocks") or () if one["type"] == "tool_use"]
            used |= {(call.exchange_entry_id, n): one["id"] for n, one in enumerate(uses)}
            for message in meta["prompt"] if isinstance(meta["prompt"], list) else ():
                blocks = message["content"] if isinstance(message["content"], list) else ()
                for block in blocks:
                    if block["type"] == "tool_result" and isinstance(block["content"], str):
                        with suppress(ValueError):
                            texts[block["tool_use_id"]] = json.loads(block["content"])
        return texts, used

    def capabilities(self, model_id: str) -> ModelCapabilities:
        """Return native tools if a recorded request offered tools."""
        return self._able

    def tools(self, *tools: Tool | Callable[..., Any]) -> list[Tool]:
        """Return tools with the same definitions that give the recorded results and do not run.

        Each recorded result is given once, to the call with equal arguments and the same place in
        its answer; a call without one raises ToolError. Sub-agents and handoffs are returned
        unchanged: their calls are replayed one by one.

        Args:
            tools: the tools of an agent, or functions, which become tools by :func:`remit.tool`.
        """
        made = (one if isinstance(one, Tool) else tool(one) for one in tools)
        return [
            one if one.sub_agent or one.handoff else replace(
                one, function=functools.partial(self._result, one.tool_id),
                prepare=lambda arguments: {"arguments": dict(arguments)}, context="call",
                deps=None, behind=(),
            )
            for one in made
        ]  # fmt: skip

    async def _result(
        self, tool_id: str, arguments: Mapping[str, Any], call: Context[Any]
    ) -> ToolResult:
        # Equal calls of one answer run in any order; their keys end with their number.
        number = int(call.idempotency_key.rpartition("/")[2])
        known = self._results[_named(tool_id, arguments)]
        for place, (_, recorded, result) in enumerate(known):
            if recorded == number:
                del known[place]
                return result
        raise ToolError(f"the recording has no call of {tool_id} with {dict(arguments)}")

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """Return the recorded answer to an equal request: the same messages and tools.

        Each recorded call is used once. The text is also passed to ``on_text``, line by line.

        Raises:
            ProviderError: the recorded call failed, with its code; or ``INVALID_REQUEST``: no
                unused recorded request is equal, and the message names the first difference.
        """
        recording = self.recording
        text = neutral_text(request.messages, request.tools)
        digest = sha256_hex(text)
        call = recording.take(lambda one: one.digest == digest)
        if call is None:
            difference = recording.differ(lambda _: text)
            raise ProviderError("INVALID_REQUEST", f"the replay ended: {difference}")
        data = recording.ledger.read(call.exchange_entry_id).metadata
        if data["outcome"] != "success":
            raise ProviderError(data["error_code"], str(data["error_message"]))
        return _said(data["response"], on_text, _response(data))

    def finish(self) -> None:
        """Check that every recorded call was made, and no other; raise AssertionError if not."""
        try:
            self.recording.finish()
        except RemitError as error:
            raise AssertionError(error.message) from None


def _named(tool_id: str, arguments: Mapping[str, Any]) -> str:
    return f"{tool_id} {exact_json(dict(arguments)).decode()}"


def _response(data: Mapping[str, Any]) -> ProviderResponse:
    """Return the recorded answer of a successful exchange, in neutral form."""
    return ProviderResponse(
        data["response"],
        data["model_id"],
        data["input_tokens"],
        data["output_tokens"],
        finish_reason=data["finish_reason"],
        content_blocks=tuple(dict(block) for block in data.get("content_blocks") or ()),
    )


def _said(text: str, on_text: TextSink | None, response: ProviderResponse) -> ProviderResponse:
    if on_text is not None:
        for piece in text.splitlines(keepends=True):
            on_text(piece)
    return response


class RecordChecks:
    """Checks of the record of a session; each check raises ``AssertionError`` if it fails.

    Args:
        runtime: the runtime whose ledger is read.
        session_id: id of the session.
    """

    def __init__(self, runtime: Runtime, session_id: str) -> None:
        self._runtime = runtime
        self._session_id = session_id

    def entries(self, event_type: str) -> list[LedgerEntry]:
        """Return the session's entries of an event type, in order."""
        found = self._runtime.ledger.query(session_id=self._session_id, event_type=event_type)
        return list(found)

    def tool_calls(self, tool_id: str) -> list[Mapping[str, Any]]:
        """Return the arguments of each call of a tool that gave a result (``ok``), in order."""
        return [
            entry.metadata["arguments"]
            for entry in self.entries("TOOL_CALL")
            if (entry.metadata["tool_id"], entry.metadata["status"]) == (tool_id, "ok")
        ]

    def tool_ran(self, tool_id: str, /, **arguments: Any) -> None:
        """Check that a call of the tool with at least these arguments gave a result."""
        calls = self.tool_calls(tool_id)
        assert calls, f"{tool_id} never ran: no call of it gave a result"
        fits = (all(call.get(k) == v for k, v in arguments.items()) for call in calls)
        assert any(fits), f"{tool_id} ran with {calls}, not with {arguments}"

    def tool_never_ran(self, tool_id: str) -> None:
        """Check that no call of the tool gave a result."""
        calls = self.tool_calls(tool_id)
        assert not calls, f"{tool_id} ran with {calls}"

    def approved(self, tool_id: str, by: str) -> None:
        """Check that a person of the name ``by`` approved a call of the tool, run or not."""
        names = [
            entry.metadata["decided_by"]
            for entry in self.entries("APPROVAL_GRANTED")
            if entry.metadata["tool_id"] == tool_id
        ]
        assert by in names, f"{tool_id} was approved by {names or 'no one'}, not by {by}"

    def spent_at_most(self, tokens: int) -> None:
        """Check that the model calls of the session used at most ``tokens`` tokens.

        Input and output count, also of failed calls. Calls of sub-agents are not counted.
        """
        used = sum(
            entry.metadata["input_tokens"] + entry.metadata["output_tokens"]
            for entry in self.entries("EXCHANGE")
        )
        assert used <= tokens, f"the session used {used} tokens, more than {tokens}"

    def verified(self) -> None:
        """Check that the whole ledger verifies."""
        report = self._runtime.ledger.verify()
        assert report.verified, report


def new_root(place: str | Path) -> Path:
    """Copy a root, which is made once in each process, to ``place``, which must not exist."""
    return _write_tree(_made(), Path(place))


@functools.cache
def _made() -> _Tree:
    with tempfile.TemporaryDirectory(prefix="remit-root-") as directory:
        root = Path(directory, "root")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REMIT_")}
        with mock.patch.dict(os.environ, kept, clear=True):
            make_root(Root(root))
        return _read_tree(root)


_Tree = list[tuple[str, int, bytes | None]]
"""Path below the top, mode and content of directories and files; a directory's content is None."""


def _read_tree(top: Path) -> _Tree:
    """Read a directory of directories and regular files into memory."""
    return [
        (
            str(path)[len(str(top)) :],
            path.stat().st_mode,
            None if path.is_dir() else path.read_bytes(),
        )
        for path in (top, *sorted(top.rglob("*")))
    ]


def _write_tree(tree: _Tree, top: Path) -> Path:
    """Write a tree to ``top``, which must not exist; takes a quarter of ``shutil.copytree``."""
    top.parent.mkdir(parents=True, exist_ok=True)
    for name, mode, content in tree:
        path = f"{top}{name}"
        if content is None:
            os.mkdir(path, mode)
        else:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
    return top


if "pytest" in sys.modules:
    import pytest

    @pytest.fixture
    def remit_root(tmp_path: Path) -> Path:
        """A new root in the test's own directory."""
        return new_root(tmp_path / "remit-root")

    @pytest.fixture
    def remit_replay() -> Iterator[Callable[..., ReplayedRun]]:
        """Returns a recorded run: ``remit_replay("path/of/ledger.db", "SES-…")``.

        The test fails at its end unless the whole run was replayed without a difference.
        """
        with ExitStack() as stack:

            def opened(*arguments: Any, **options: Any) -> ReplayedRun:
                run = ReplayedRun(*arguments, **options)
                stack.callback(run.finish)
                return run

            yield opened

    @pytest.fixture
    def remit_runtime(remit_root: Path) -> Iterator[Callable[..., Runtime]]:
        """Opens the root of the test with a scripted model: ``remit_runtime("an answer", …)``.

        Keyword arguments are those of :meth:`remit.Runtime.open`. Runtimes are closed at the end.
        """
        with ExitStack() as stack:

            def opened(*answers: Any, **options: Any) -> Runtime:
                options.setdefault("providers", {"scripted": ScriptedModel(*answers)})
                return stack.enter_context(Runtime.open(remit_root, **options))

            yield opened
