"""A recorded run, read for a replay: its calls, their matching, and the first difference.

A run is a session, with the sessions of its sub-agents, or a work order. A recording only reads the
ledger. Each call is replayed once: a request gets the earliest recorded answer to an equal request,
or else to one that differs in labels alone (:func:`unlabelled_digest`). Parallel calls may arrive
in any order. The first request without an answer is the difference, which ends the replay.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from remit.gateway.outgoing_requests import LOWERED
from remit.kernel.canonical import exact_json, sha256_hex
from remit.kernel.errors import NotFoundError, RemitError
from remit.kernel.json_splice import elements, members, remove_member, spans
from remit.kernel.json_text import JsonTextError, dump, load, load_exact
from remit.ledger import LedgerClient, LedgerEntry, call_body, first_erased
from remit.providers.wire import ENDPOINTS

ANY_MODEL = "*"
_LABELS = {"user", "safety_identifier", "prompt_cache_key"}
_LISTS = ("input", "messages")
_ABSENT = "nothing"
_MISSING = object()
_EXCERPT_CHARS, _BEFORE_CHARS = 120, 40
_VALUES = ("prompt", "parameters", "tools", "response", "content_blocks", "answer", "replied",
           "stream", "context_hash")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """The first difference between a replay and its recording.

    Immutable; ``str`` gives a sentence.

    Attributes:
        request: number of the request, from 1.
        field: JSON pointer of the field; ``byte N`` if only the spelling of the JSON differs.
        expected: the recorded value, shortened; ``nothing`` if the record has no such field.
        found: the value of the replay, shortened; ``nothing`` if the request has no such field.
        note: a sentence about the record that may explain the difference; may be empty.
    """

    request: int
    field: str
    expected: str
    found: str
    note: str = ""

    def __str__(self) -> str:
        said = f"request {self.request} differs from the recording in {self.field}: expected "
        return f"{said}{self.expected}, found {self.found}{self.note and '; ' + self.note}"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A client's call, with all its attempts.

    Immutable.

    Attributes:
        number: place of the call in the run, from 1.
        exchange_entry_id: the ``EXCHANGE`` of the last attempt.
        began: sequence number of the first ``DISPATCH``.
        ended: sequence number of the last ``EXCHANGE``.
        provider_id: the provider of the last attempt.
        model_id: the provider's name of the model that was asked.
        asked: the client's name of the model; empty if the record has only its meaning;
            :data:`ANY_MODEL` if a route chose the model.
        wire: the endpoint whose body was sent; empty for a call in neutral form.
        digest: SHA-256 of :meth:`Recording.request_of`, 64 hex digits.
        output: the output limit to which a budget lowered the call; None if it did not.
        is_rebuilt: True if the answer was a stream of which only the sum is recorded.
    """

    number: int
    exchange_entry_id: str
    began: int
    ended: int
    provider_id: str
    model_id: str
    asked: str
    wire: str
    digest: str
    output: int | None = None
    is_rebuilt: bool = False

    @property
    def target(self) -> tuple[str, str, str, str, int | None]:
        """The values on which the sent form of a request depends."""
        return self.provider_id, self.model_id, self.asked, self.wire, self.output


@dataclass(slots=True)
class Recording:
    """The calls of a run, and the state of its replay.

    Threads may share a recording.

    Making the object reads all calls of the run. :meth:`take` and :meth:`take_rejection` consume
    the record, :meth:`differ` ends the replay, :meth:`finish` checks that nothing is left.

    Args:
        ledger: the ledger, which is only read.
        run: a session, a work order (``WO-…``), or an entry (``LED-…``) of the session.
        any_results: True to accept any results of the client's tools, which may contain times.

    Attributes:
        sessions: the session and the sessions of its sub-agents; empty for a work order.
        calls: the calls, in the order of their first dispatch, without results of batches.
        rejections: the refusals of the run (``PROMPT_REJECTED``) that were not replayed yet, in
            order.
        replayed: the calls that were replayed, in the order of the replay.
        difference: the first difference; None without one.

    Raises:
        NotFoundError: the ledger has no call of this run.
        RemitError: a call was erased, so that the run cannot be replayed.
        LedgerError: the ledger cannot be read.
    """

    ledger: LedgerClient
    run: str
    any_results: bool = False
    sessions: tuple[str, ...] = ()
    calls: tuple[RecordedCall, ...] = ()
    rejections: list[LedgerEntry] = field(default_factory=list)
    replayed: list[RecordedCall] = field(default_factory=list)
    difference: ReplayDifference | None = None
    _ranges: list[dict[str, Any]] = field(default_factory=list)
    _pending: list[RecordedCall] = field(default_factory=list)
    _unanswered: list[str] = field(default_factory=list)
    _compared: dict[int, str] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        run, ledger = self.run, self.ledger
        if run.startswith("LED-"):
            run = str(ledger.read(run).metadata.get("session_id") or "")
        if not run.startswith("WO-"):
            self.sessions = tuple(_sessions(ledger, run))
        self._ranges = [{"work_order_id": run}] if not self.sessions else [
            {"session_id": one} for one in self.sessions
        ]  # fmt: skip
        found = sorted(
            (entry for which in self._ranges for entry in _calls(ledger, which, self.run)),
            key=lambda entries: _seq(entries[0].metadata["dispatch_entry_id"]),
        )
        self.calls = tuple(
            _call(ledger, number, attempts) for number, attempts in enumerate(found, 1)
        )
        if not self.calls:
            raise NotFoundError(
                f"The ledger has no model call of {self.run}.",
                next_step="`remit session list` lists the sessions.",
            )
        self.rejections += self.entries("PROMPT_REJECTED")
        answered = {one.metadata["dispatch_entry_id"] for attempts in found for one in attempts}
        self._unanswered += [one.id for one in self.entries("DISPATCH") if one.id not in answered]
        self._pending = [*self.calls]

    def entries(self, *event_types: str) -> Iterator[LedgerEntry]:
        """Yield the entries of the run of some event types, in ledger order by session."""
        for which in self._ranges:
            found = [self.ledger.query(event_type=name, **which) for name in event_types]
            yield from heapq.merge(*found, key=lambda entry: _seq(entry.id))

    @property
    def pending(self) -> tuple[RecordedCall, ...]:
        """The calls that have not been replayed."""
        return tuple(self._pending)

    def take(self, fits: Callable[[RecordedCall], bool]) -> RecordedCall | None:
        """Return the earliest pending call that fits, and mark it as replayed; None if none fits.

        None is also returned after a difference. Threads may call this at the same time.

        Args:
            fits: returns True if the request equals the recorded one.
        """
        with self._lock:
            if self.difference is not None:
                return None
            call = next(filter(fits, self._pending), None)
            if call is not None:
                self._pending.remove(call)
                self.replayed.append(call)
            return call

    def take_rejection(self) -> LedgerEntry | None:
        """Return the next recorded refusal if no pending call precedes it, and remove it; else
        None.

        None is also returned after a difference.
        """
        with self._lock:
            if self.difference is None and self.rejections:
                first = self._pending[0].began if self._pending else None
                if first is None or _seq(self.rejections[0].id) < first:
                    return self.rejections.pop(0)
        return None

    def differ(self, found: Callable[[RecordedCall], bytes]) -> ReplayDifference:
        """Note the difference of a request that no pending call fits, and return the first one.

        The request is compared with the earliest pending call, or with a call that ran at the same
        time if that one is more alike. After an earlier difference, that one is returned and
        nothing is compared.

        Args:
            found: returns the request in the form in which a recorded call was sent.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        with self._lock:
            if self.difference is not None:
                return self.difference
            if not self._pending:
                number = len(self.calls) + 1
                self.difference = ReplayDifference(
                    number, "the whole request", _ABSENT, "a request after the last recorded one"
                )
                return self.difference
            end = self._pending[0].ended
            near = [call for call in self._pending if call.began <= end]
            part = partial(_compared, results=not self.any_results)
            texts = [(call, part(self.request_of(call)), part(found(call))) for call in near]
            call, expected, sent = max(texts, key=lambda text: (_alike(*text[1:]), -text[0].number))
            place, was, now = first_difference(expected, sent)
            lost = [one for one in self._unanswered if _seq(one) < call.ended]
            note = f"{lost[0]} was sent and has no recorded answer" if lost else ""
            self.difference = ReplayDifference(call.number, place, was, now, note)
            return self.difference

    def finish(self) -> None:
        """Raise RemitError unless every recorded call was replayed without a difference.

        Recorded refusals that were not replayed do not count.

        Raises:
            RemitError: the replay differed, or recorded calls were not made.
        """
        with self._lock:
            if self.difference is not None:
                raise RemitError(
                    f"The replay of {self.run} ended: {self.difference}.",
                    next_step=f"`remit replay {self.run} --step` shows the recorded calls.",
                )
            if self._pending:
                raise RemitError(
                    f"The replay of {self.run} ended before request {self._pending[0].number}: "
                    f"{len(self._pending)} of {len(self.calls)} recorded calls were not made.",
                    next_step="Check the end of the program, or its log, for an error of its own.",
                )

    def compared(self, text: bytes) -> str:
        """Return the SHA-256 of the part of a request that is compared, 64 hex digits."""
        return sha256_hex(_compared(text, results=not self.any_results))

    def compared_of(self, call: RecordedCall) -> str:
        """Return :meth:`compared` of a call's request; raise as :meth:`request_of`."""
        if call.number not in self._compared:
            self._compared[call.number] = self.compared(self.request_of(call))
        return self._compared[call.number]

    def request_of(self, call: RecordedCall) -> bytes:
        """Return the request of a call: its body, or its messages and tools as JSON.

        Args:
            call: a call of this recording.

        Raises:
            LedgerError: the entry cannot be read, or a part was erased since the recording was
                opened.
        """
        if call.wire:
            return call_body(self.ledger, call.exchange_entry_id)
        meta = self.ledger.read(call.exchange_entry_id).metadata
        return neutral_text(meta["prompt"], meta.get("tools") or ())


def neutral_text(prompt: Any, tools: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a request in neutral form as canonical JSON text, for comparisons.

    Args:
        prompt: the messages; or a text, which stands for one message.
        tools: the tool definitions.

    Raises:
        NotCanonicalError: a value has no JSON text.
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    return exact_json({"messages": messages, "tools": [dict(tool) for tool in tools]})


def _compared(text: bytes, *, results: bool) -> bytes:
    """Return the part of a request that a replay compares; other bytes are cut out.

    Left out are labels. They identify a request, its sender or a message for the records of the
    client or provider, and the model does not get them: a member of the request, or of an item of
    ``input`` or ``messages``, whose name contains ``metadata``; ``user``, ``safety_identifier`` and
    ``prompt_cache_key`` of the request; ``id`` of an item, unless the item is only a reference.

    Args:
        text: the request. A text that is not a JSON object is returned unchanged.
        results: False to leave out the results of the client's tools too: ``output`` of an item
            with a ``call_id``, and ``content`` of a message or block that answers a tool call.
    """
    try:
        is_object = isinstance(load(text), dict)
    except JsonTextError:
        is_object = False
    if not is_object:
        return text
    text = _without(text, _LABELS)
    for start, end in reversed(spans(text, _LISTS).values()):
        items = _each(text[start:end], lambda item: _compared_item(item, results=results))
        text = b"%b%b%b" % (text[:start], items, text[end:])
    return text


def _compared_item(item: bytes, *, results: bool) -> bytes:
    value = load(item)
    labels = {"id"} if value.keys() - {"id", "type"} else set()
    if not results and "call_id" in value:
        labels.add("output")
    if not results and (value.get("role") == "tool" or value.get("type") == "tool_result"):
        labels.add("content")
    item = _without(item, labels)
    for start, end in () if results else spans(item, ("content",)).values():
        blocks = _each(item[start:end], lambda block: _compared_item(block, results=False))
        item = b"%b%b%b" % (item[:start], blocks, item[end:])
    return item


def _each(array: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return a JSON array with its objects changed; any other value unchanged."""
    if array[:1] != b"[":
        return array
    parts = (change(one) if one.lstrip()[:1] == b"{" else one for one in elements(array))
    return b"[%b]" % b",".join(parts)


def _without(text: bytes, names: Collection[str]) -> bytes:
    for name in [found.name for found in members(text)]:
        if name in names or "metadata" in name:
            text = remove_member(text, (name,))
    return text


def first_difference(expected: bytes, found: bytes) -> tuple[str, str, str]:
    """Return the place of the first difference of two JSON texts, and both values as excerpts.

    The place is a JSON pointer, ``/`` for the whole text. It is ``byte N`` if only the spelling
    differs, or a text is not JSON. All three are empty if nothing differs.

    Args:
        expected: the recorded text.
        found: the text to compare.
    """
    try:
        place = _difference(load_exact(expected), load_exact(found))
    except JsonTextError:
        place = None
    if place is not None:
        return place
    if expected == found:
        return "", "", ""
    at = _alike(expected, found)
    shown = slice(max(0, at - _BEFORE_CHARS), at + _BEFORE_CHARS)
    was, now = (repr(text[shown].decode("utf-8", "replace")) for text in (expected, found))
    return f"byte {at}", was, now


def _difference(expected: Any, found: Any, place: str = "") -> tuple[str, str, str] | None:
    if isinstance(expected, dict) and isinstance(found, dict):
        names = [*expected, *(name for name in found if name not in expected)]
        parts: Iterable[tuple[Any, Any, Any]] = (
            (name, expected.get(name, _MISSING), found.get(name, _MISSING)) for name in names
        )
    elif isinstance(expected, list) and isinstance(found, list):
        pairs = itertools.zip_longest(expected, found, fillvalue=_MISSING)
        parts = ((at, *pair) for at, pair in enumerate(pairs))
    elif type(expected) is type(found) and expected == found:
        return None
    else:
        start = 0
        if isinstance(expected, str) and isinstance(found, str):
            start = max(0, _alike(expected, found) - _BEFORE_CHARS)
        return place or "/", _excerpt(expected, start), _excerpt(found, start)
    for name, one, other in parts:
        step = str(name).replace("~", "~0").replace("/", "~1")
        if (inner := _difference(one, other, f"{place}/{step}")) is not None:
            return inner
    return None


def _excerpt(value: Any, start: int = 0) -> str:
    """Return a value as JSON, shortened; a string from ``start`` on."""
    if value is _MISSING:
        return _ABSENT
    text = dump(value[start:] if start else value).decode()
    text = text if len(text) <= _EXCERPT_CHARS else f"{text[:_EXCERPT_CHARS]}…"
    return f"…{text}" if start else text


def _alike(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the length of the common start of two sequences, by bisection."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _sessions(ledger: LedgerClient, session_id: str) -> Iterator[str]:
    """Yield a session, then the sessions of its sub-agents, each once."""
    known, queue = {session_id}, [session_id]
    while queue:
        yield (name := queue.pop(0))
        for entry in ledger.query(session_id=name, event_type="TOOL_INTENT", with_content=False):
            below = entry.metadata.get("sub_session_id")
            if isinstance(below, str) and below and below not in known:
                known.add(below)
                queue.append(below)


def _calls(ledger: LedgerClient, which: Mapping[str, Any], run: str) -> Iterator[list[LedgerEntry]]:
    """Yield the exchanges of each call of a client, in the order of its attempts.

    Results of batches, and calls of paths that serve no model, are left out.
    """
    attempts: dict[str, list[LedgerEntry]] = {}
    for entry in ledger.query(event_type="EXCHANGE", **which):
        meta = entry.metadata
        if "batch_id" in meta or meta.get("wire", "openai.chat") not in ENDPOINTS:
            continue
        if (gone := first_erased(map(meta.get, _VALUES))) is not None:
            what = f"was erased ({gone.erasure_id})" if gone.erasure_id else "is missing"
            raise RemitError(
                f"Content of {entry.id} {what}, so the run of {run} cannot be replayed.",
                next_step="Replay another run; erased content cannot be restored.",
            )
        attempts[entry.id] = [*attempts.pop(meta.get("retry_of", ""), ()), entry]
    yield from attempts.values()


def _call(ledger: LedgerClient, number: int, attempts: Sequence[LedgerEntry]) -> RecordedCall:
    last = attempts[-1]
    meta = last.metadata
    sent_to = ledger.read(meta["dispatch_entry_id"], with_content=False).reason
    provider_id, _, model_id = sent_to.removeprefix("Dispatching to ").partition("/")
    output, changes = None, meta.get("changed") or ()
    for change in changes:
        if change["reason"] == LOWERED and "cut" in meta:
            output = _member(load_exact(call_body(ledger, last.id)), change["path"])
    asked = "" if any(change["path"] == "" for change in changes) else model_id
    if "decision_id" in meta:
        asked = ANY_MODEL
    for change in changes:
        if change["path"] == "/model" and asked != ANY_MODEL:
            asked = load_exact(change["was"].encode()) if "was" in change else ""
    parameters = meta.get("parameters")
    is_rebuilt = (
        isinstance(parameters, dict) and parameters.get("stream") is True and "stream" not in meta
    )
    wire = str(meta.get("wire", ""))
    digest = str(meta["context_hash"])
    if not wire:
        digest = sha256_hex(neutral_text(meta["prompt"], meta.get("tools") or ()))
    return RecordedCall(
        number, last.id, _seq(attempts[0].metadata["dispatch_entry_id"]), _seq(last.id),
        provider_id, model_id, asked, wire, digest, output, is_rebuilt,
    )  # fmt: skip


def _seq(entry_id: str) -> int:
    return int(entry_id.removeprefix("LED-"), 16)


def _member(value: Any, pointer: str) -> int | None:
    for name in pointer.strip("/").split("/"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) else None
