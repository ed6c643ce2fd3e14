"""A call of the Responses API: the earlier turns to send, and the ids to record."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from remit.gateway import (
    MAX_ID_CHARS,
    Attempt,
    Candidate,
    CannotContinueError,
    Failure,
    KeptId,
)
from remit.kernel.errors import RemitError
from remit.kernel.json_splice import elements, set_member, spans
from remit.kernel.json_text import JsonTextError, dump, load
from remit.ledger import Content, is_plain_text
from remit.providers import Body, ProviderResponse
from remit.providers.dialects import (
    DialectError,
    ModelCall,
    read_request,
    response_object,
    write_answer,
)
from remit.server.answers import billed, read_reply
from remit.server.responses.chain import Turns, text_of
from remit.server.responses.chain_turn import NATIVE, Turn
from remit.server.responses.items import (
    BYTES_PER_TOKEN,
    array,
    fitting,
    id_of,
    items_in,
    portable,
    type_of,
)

_log = logging.getLogger("remit.server")

_OUTPUT_TOKENS = 4_096  # Room for an answer if the client sets no limit.

_UNFOLDED = "the chain is unfolded from the record: this provider does not keep it"
_BRINGS_TOOLS = "the chain is unfolded from the record: it has tools that the provider runs"
_CONVERSATION = "Remit keeps the conversation"
_KNOWN_AS = "the provider's own id of the response"
_IN_BACKGROUND = "Remit runs it in the background"
_FROM_RECORD = "items that the provider does not keep, from the record"


class ResponseCall:
    """The state of a call; implements :class:`remit.gateway.values.Keeper`.

    The gateway calls :meth:`body_for` before each attempt, :meth:`ids_ahead` before it sends the
    body, and :meth:`on_record` when it records the last attempt. An instance serves one call and is
    used in one event loop.

    Args:
        turns: reads recorded turns.
        body: the client's body.
        owner: owner of the answer.
        session_id: session of the call.
        previous: the turn that the call continues; ``None`` if it continues none.
        referred: the items that the input refers to, and their turns, keyed by item id.
        conversation: id of the conversation that the call belongs to; empty if none.

    Attributes:
        response_id: id of an answer that Remit makes, and of each answer in a background call that
            is not streamed. Elsewhere an answer of a provider of this dialect keeps its id.
        created: beginning of the call, in seconds since 1970.
        cancelled: True if another request stopped the call; :meth:`Background.run` sets it.
        writer: writer of the stream that the client receives; None without one.
        replied: JSON text of the ``response`` object for the client, if it has :attr:`response_id`.
            Empty if the provider's own is sent unchanged, and before :meth:`on_record`.
    """

    def __init__(
        self,
        turns: Turns,
        body: Body,
        owner: str,
        session_id: str,
        previous: Turn | None = None,
        referred: Mapping[str, tuple[Turn, bytes]] | None = None,
        conversation: str = "",
    ) -> None:
        self.response_id = f"resp_{secrets.token_hex(24)}"
        self.created = int(time.time())
        self.cancelled = False
        self.writer: Any = None
        self.replied = b""
        self._turns = turns
        self._body = body
        self._owner = owner
        self._session_id = session_id
        self._previous = previous
        self._referred = referred or {}
        self._conversation = conversation
        self._forgotten = ""  # Id of the provider that no longer stores the previous response.
        self._call: ModelCall | None = None

    @property
    def stored(self) -> bool:
        """True if the client may use the id of the answer later.

        This is so unless the request has ``store: false``.
        """
        return self._body.value.get("store") is not False

    @property
    def background(self) -> bool:
        """True if the call continues after its client disconnects."""
        return self._body.value.get("background") is True

    @property
    def _named_early(self) -> bool:
        """True if the client knows the id before the answer is recorded."""
        return self.background or self._body.stream

    @property
    def polled(self) -> bool:
        """True if the client first gets only an id, and polls for the answer."""
        return self.background and not self._body.stream

    @property
    def reads_record(self) -> bool:
        """True if the body to send may contain recorded content: earlier turns or items by id."""
        return self._previous is not None or bool(self._referred)

    @property
    def asked(self) -> ModelCall:
        """The client's request in neutral form, without its input.

        Read once.

        Raises:
            DialectError: the body is not a valid request.
        """
        if self._call is None:
            self._call = read_request(NATIVE, {**self._body.value, "input": "-"})
        return self._call

    # -- the body to send ---------------------------------------------------------------

    async def body_for(self, provider_id: str, *, speaks: bool, window: int | None) -> Body:
        """Return the body to send to a provider.

        The earlier turns are added unless the provider stores them itself and none brought a tool
        that the provider runs, whose cost must be bounded. If the provider lacks this endpoint, the
        window is known and the body has ``truncation: auto``, the oldest turns that do not fit are
        left out, by an estimate in bytes; messages of the system and the developer and the last one
        of the user always stay. Each change of the client's body is noted in the new body. The
        earlier turns are read in a thread, and no text of the client's own items is changed.

        Args:
            provider_id: id of the provider.
            speaks: True if the provider has this endpoint; it then truncates by itself.
            window: context length of the model in tokens; ``None`` if it is unknown.

        Raises:
            CannotContinueError: earlier turns or items were erased, or are too long.
            LedgerError: the ledger cannot be read.
        """
        body = await self._unfolded(provider_id, speaks)
        if speaks or window is None or body.value.get("truncation") != "auto":
            return body
        items = input_of(body)
        around = len(body.raw) - sum(map(len, items))
        tokens = window - (body.output_limit or _OUTPUT_TOKENS)
        left = fitting(items, tokens * BYTES_PER_TOKEN - around)
        if len(left) == len(items):
            return body
        missing = len(items) - len(left)
        reason = f"truncation is auto: {missing} of {len(items)} items do not fit the model"
        return body.with_member(("input",), array(left), reason)

    async def _unfolded(self, provider_id: str, speaks: bool) -> Body:
        body, previous = self._body, self._previous
        if self.background:
            for name in ("background", "background_options"):
                body = body.without_member((name,), _IN_BACKGROUND)
            if not body.stream:  # Chunks show that a long answer is still being made.
                body = body.with_member(("stream",), b"true", _IN_BACKGROUND)
        if self._referred:
            await asyncio.to_thread(self._require_items)
            body = self._with_items(body, provider_id, speaks)
        if self._conversation:
            body = body.without_member(("conversation",), _CONVERSATION)
        if previous is None:
            return body
        reason = _UNFOLDED
        if speaks and previous.provider_id == provider_id != self._forgotten:
            kept = self._turns.kept_by_provider(previous)
            if kept:
                reason = _BRINGS_TOOLS
                brings_tools = await asyncio.to_thread(self._turns.bring_tools, previous)
                if not brings_tools:
                    return self._continuing(body, kept)
        items = await asyncio.to_thread(self._turns.unfolded, previous, provider_id, speaks=speaks)
        if items:
            own = input_of(body)
            body = body.with_member(("input",), array([*items, *own]), reason)
        return body.without_member(("previous_response_id",), reason)

    def _continuing(self, body: Body, kept: str) -> Body:
        if body.value.get("previous_response_id") == kept:
            return body
        return body.with_member(("previous_response_id",), orjson.dumps(kept), _KNOWN_AS)

    def _require_items(self) -> None:
        """Raise CannotContinueError if an item that the input refers to was erased."""
        for name in self._referred:
            if self._turns.item(name, self._owner) is None:
                raise CannotContinueError("An item that the input refers to was erased.", "input")

    def _with_items(self, body: Body, provider_id: str, speaks: bool) -> Body:
        """Return the body with references replaced by items that the provider does not store."""
        own = input_of(body)
        items: list[bytes] = []
        for item in own:
            if type_of(item) != "item_reference":
                items.append(item)
                continue
            turn, text = self._referred[id_of(item)]
            same = turn.provider_id == provider_id and turn.native == speaks
            kept = same and speaks and self._turns.kept_by_provider(turn)
            items += [item] if kept else portable([text], same_provider=same)
        if items == own:
            return body
        return body.with_member(("input",), array(items), _FROM_RECORD)

    # -- the record ---------------------------------------------------------------------

    def ids_ahead(self, to: Candidate) -> Sequence[KeptId]:
        """Return the ids to record before the call is sent: the response's, or none.

        There is one if the client may use the id later (``store``) and learns it before the answer
        is recorded: in a stream, or by a call in the background. There is none for a stream from a
        provider of this dialect, which gives an id of its own.

        Args:
            to: the candidate that the call is sent to.
        """
        early = self.polled or (self._named_early and not self._is_native(to))
        if not (self.stored and early):
            return ()
        return (self._kept(self.response_id),)

    def on_record(
        self, metadata: dict[str, Any], attempt: Attempt, result: ProviderResponse | Failure
    ) -> Sequence[KeptId]:
        """Add to the metadata of the ``EXCHANGE``, and return the ids that lead to the entry.

        Sets :attr:`replied` if the client gets an object that Remit makes or renames. An answer
        that cannot be translated leaves :attr:`replied` empty; no error is raised.

        Args:
            metadata: metadata of the entry, changed in place.
            attempt: the last attempt.
            result: the answer or the failure.

        Returns:
            Ids of the response and its items, if the response is stored and has an object or was
            named to the client. Also the id of its conversation, if ``result`` is an answer.
        """
        if isinstance(result, Failure) and b"previous_response_not_found" in _answer_text(result):
            self._forgotten = attempt.to.provider_id
        if self._previous is not None:
            metadata["continues"] = self._previous.entry.id
        if self._conversation:
            metadata["conversation_id"] = self._conversation
        if not self.stored:
            metadata["stored"] = False
        native = self._is_native(attempt.to)
        sent = attempt.to.outgoing
        if not native or self._referred or (sent is not None and _changed_input(sent.body)):
            metadata["asked"] = self._asked()
        if native and not self.polled:
            answer = attempt.arrived or _answer_text(result)
            value = _value(answer)
            response_id = _id_in(value)
        else:
            response_id = self.response_id
            answer = self.replied = self._reply(metadata, result, native)
            if answer:
                metadata["replied"] = Content.exact(answer)
            value = _value(answer)
        if response_id:
            metadata["response_id"] = response_id
        ids: list[str] = []
        if response_id and self.stored and (answer or self._named_early):
            ids = ids_in(response_id, value)
        kept = [self._kept(identity) for identity in ids]
        if self._conversation and isinstance(result, ProviderResponse):
            kept.append(self._kept(self._conversation, is_new=False))
        return kept

    def _asked(self) -> Content:
        """Return the client's own input as exact text, with references replaced by items."""
        raw = self._body.raw
        place = spans(raw, ("input",)).get("input")
        text = b"[]" if place is None else raw[slice(*place)]
        if text[:1] != b"[":
            return Content.exact(text)
        items = elements(text)
        if self._referred:
            items = [
                self._referred[id_of(item)][1] if type_of(item) == "item_reference" else item
                for item in items
            ]
        return Content.exact_list(items)

    def _kept(self, identity: str, *, is_new: bool = True) -> KeptId:
        return KeptId(identity, self._owner, self._session_id, is_new)

    def _is_native(self, to: Candidate) -> bool:
        return to.outgoing is not None and to.outgoing.body.endpoint.name == NATIVE

    def _reply(
        self, metadata: dict[str, Any], result: ProviderResponse | Failure, native: bool
    ) -> bytes:
        """Return the ``response`` object for the client, if it is not the provider's own.

        Empty if the client gets none: after a failure that it sees as an error, and for an answer
        that cannot be translated.
        """
        try:
            if isinstance(result, Failure):
                return self._failed(result) if self._named_early else b""
            answer = result
            if native:
                return self._renamed(_answer_text(result))
            if result.reply is not None:
                answer = billed(
                    read_reply(result.reply.endpoint, result.reply.body),
                    (metadata["input_tokens"], metadata["output_tokens"]),
                    metadata.get("cost_certainty"),
                )
            model = self._body.model if self._body.stream else metadata["model_id"]
            made = write_answer(
                NATIVE,
                answer,
                self.asked,
                answer_id=self.response_id,
                created=self.created,
                model=model,
            )
            if self.writer is not None:  # The client has the provider's own spelling of arguments.
                arguments = self.writer.arguments
                for item in made["output"]:
                    if item.get("call_id") in arguments:
                        item["arguments"] = arguments[item["call_id"]]
            return dump(made)
        except RemitError as error:  # The relay reports the error to the client.
            _log.debug("an answer cannot be translated: %s", error.message)
            return b""

    def _failed(self, failure: Failure) -> bytes:
        if self.cancelled:
            return self.unfinished("cancelled")
        error = {"code": failure.code.lower(), "message": failure.message}
        return self.unfinished("failed", error)

    def unfinished(self, status: str, error: dict[str, Any] | None = None) -> bytes:
        """Return the JSON text of a ``response`` object without an answer.

        Values of the client's request are repeated in it. If Remit cannot read the request, only
        its model and ``background`` are repeated, and the other members have their defaults.

        Args:
            status: status of the object, such as ``queued``.
            error: the object's error; ``None`` without one.
        """
        try:
            asked = self.asked
        except DialectError:  # The provider may accept a body that Remit cannot read.
            asked = ModelCall(self._body.model, [], other={"background": self.background})
        head = response_object(
            asked,
            answer_id=self.response_id,
            created=self.created,
            model=self._body.model,
        )
        return dump({**head, "status": status, "error": error})

    def _renamed(self, answer: bytes) -> bytes:
        """Return a provider's object under the id that the client was given earlier."""
        answer = set_member(answer, ("id",), orjson.dumps(self.response_id))
        return set_member(answer, ("background",), b"true")


def input_of(body: Body) -> list[bytes]:
    """Return the items of a body's input, as exact text; empty without an input.

    An input that is a text is one message of the user.

    Args:
        body: body of a request.

    Raises:
        JsonTextError: the body is not valid JSON.
    """
    place = spans(body.raw, ("input",)).get("input")
    return [] if place is None else items_in(body.raw[slice(*place)])


def _changed_input(body: Body) -> bool:
    return any(change["path"] in ("/input", "") for change in body.changed)


def _answer_text(result: ProviderResponse | Failure) -> bytes:
    return result.reply.body if result.reply is not None else b""


def _value(text: bytes) -> dict[str, Any]:
    try:
        value = load(text) if text else None
    except JsonTextError:
        return {}
    return value if type(value) is dict else {}


def _id_in(value: Mapping[str, Any]) -> str:
    """Return the id in an object; empty if it is missing, too long or not plain text."""
    found = text_of(value.get("id"))
    return found if len(found) <= MAX_ID_CHARS and is_plain_text(found) else ""


def ids_in(response_id: str, answer: Mapping[str, Any]) -> list[str]:
    """Return the ids that clients may use for an answer and its items, without repetitions.

    The response's id comes first.

    Args:
        response_id: id of the response; included as it is.
        answer: the ``response`` object. Ids of items in its ``output`` are left out if they are
            missing, too long or not plain text.
    """
    output = answer.get("output")
    items = output if type(output) is list else []
    ids = [_id_in(item) for item in items if type(item) is dict]
    return list(dict.fromkeys([response_id, *filter(None, ids)]))
