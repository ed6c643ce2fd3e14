"""A call of the Responses API: its earlier turns, and the record of its id."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from remit.gateway import MAX_ID_CHARS, Attempt, Candidate, Failure, KeptId
from remit.kernel.errors import RemitError
from remit.kernel.json_text import JsonTextError, dump, elements, load, set_member, spans
from remit.ledger import Content, is_plain_text
from remit.providers import Body, ProviderResponse
from remit.providers.dialects import (
    DialectError,
    ModelCall,
    read_answer,
    read_request,
    response_object,
    write_answer,
)
from remit.server.answers import billed
from remit.server.responses.items import (
    BYTES_PER_TOKEN,
    array,
    fitting,
    id_of,
    items_in,
    portable,
    type_of,
)
from remit.server.responses.turns import NATIVE, Turn, Turns, text_of

_log = logging.getLogger("remit.server")

_OUTPUT_TOKENS = 4_096  # left for an answer whose client names no limit

_UNFOLDED = "the chain is unfolded from the record: this provider does not keep it"
_CONVERSATION = "Remit keeps the conversation"
_KNOWN_AS = "the provider's own id of the response"
_IN_BACKGROUND = "Remit runs it in the background"
_FROM_RECORD = "items that the provider does not keep, from the record"


class ResponseCall:
    """The keeper of one call (see :class:`remit.gateway.answer_store.Keeper`).

    Args:
        turns: the record.
        body: the client's.
        owner: whose the answer will be.
        session_id: of the call.
        previous: the turn that it goes on from.
        referred: by id, the items that the input refers to, and the turns that they are of.
        conversation: the id of the conversation that it is part of; empty for none.

    Attributes:
        response_id: the id of an answer that Remit makes; one of the provider's own form keeps
            the id that the provider gave it.
        created: when the call began, seconds since 1970.
        cancelled: whether somebody asked for the call to stop.
        replied: the object that the client gets, where it is not the provider's own.
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
        self.replied = b""
        self._turns = turns
        self._body = body
        self._owner = owner
        self._session_id = session_id
        self._previous = previous
        self._referred = referred or {}
        self._conversation = conversation
        self._forgotten = ""  # the provider that does not keep the previous response any more
        self._call: ModelCall | None = None

    @property
    def stored(self) -> bool:
        """Whether the client may name the answer later."""
        return self._body.value.get("store") is not False

    @property
    def background(self) -> bool:
        """Whether the client wants to poll for the answer."""
        return self._body.value.get("background") is True

    @property
    def _named_early(self) -> bool:
        """True if the client knows the id before the answer is recorded."""
        return self.background or self._body.stream

    @property
    def polled(self) -> bool:
        """Whether the client gets nothing but an id at first."""
        return self.background and not self._body.stream

    @property
    def asked(self) -> ModelCall:
        """What the client asked for; without its input.

        Raises:
            DialectError: its body is no valid one.
        """
        if self._call is None:
            self._call = read_request(NATIVE, {**self._body.value, "input": "-"})
        return self._call

    # -- what goes out ------------------------------------------------------------------

    async def body_for(self, provider_id: str, *, speaks: bool, window: int | None) -> Body:
        """See :class:`remit.gateway.answer_store.Keeper`."""
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
            body = body.without_member(("background",), _IN_BACKGROUND)
            if not body.stream:  # a long answer is known to be alive by its pieces
                body = body.with_member(("stream",), b"true", _IN_BACKGROUND)
        if self._referred:
            body = self._with_items(body, provider_id, speaks)
        if self._conversation:
            body = body.without_member(("conversation",), _CONVERSATION)
        if previous is None:
            return body
        if speaks and previous.provider_id == provider_id != self._forgotten:
            kept = self._turns.kept_by_provider(previous)
            if kept:
                return self._continuing(body, kept)
        items = await asyncio.to_thread(self._turns.unfolded, previous, provider_id, speaks=speaks)
        if items:
            own = input_of(body)
            body = body.with_member(("input",), array([*items, *own]), _UNFOLDED)
        return body.without_member(("previous_response_id",), _UNFOLDED)

    def _continuing(self, body: Body, kept: str) -> Body:
        if body.value.get("previous_response_id") == kept:
            return body
        return body.with_member(("previous_response_id",), orjson.dumps(kept), _KNOWN_AS)

    def _with_items(self, body: Body, provider_id: str, speaks: bool) -> Body:
        """References to items that this provider does not keep are replaced by the items."""
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

    # -- what stands on record ----------------------------------------------------------

    def ids_ahead(self, to: Candidate) -> Sequence[KeptId]:
        """See :class:`remit.gateway.answer_store.Keeper`."""
        early = self.polled or (self._named_early and not self._is_native(to))
        if not (self.stored and early):
            return ()
        return (self._kept(self.response_id),)

    def on_record(
        self, metadata: dict[str, Any], attempt: Attempt, result: ProviderResponse | Failure
    ) -> Sequence[KeptId]:
        """See :class:`remit.gateway.answer_store.Keeper`."""
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
        """The client's own input in its exact text, with the items that it refers to."""
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
        """The object that the client gets, where it is not the provider's; empty: it gets none."""
        try:
            if isinstance(result, Failure):
                return self._failed(result) if self._named_early else b""
            answer = result
            if native:
                return self._renamed(_answer_text(result))
            if result.reply is not None:
                answer = billed(
                    read_answer(result.reply.endpoint, load(result.reply.body)),
                    (metadata["input_tokens"], metadata["output_tokens"]),
                    metadata.get("cost_certainty"),
                )
            model = self._body.model if self._body.stream else metadata["model_id"]
            return dump(
                write_answer(
                    NATIVE,
                    answer,
                    self.asked,
                    answer_id=self.response_id,
                    created=self.created,
                    model=model,
                )
            )
        except RemitError as error:  # the answer's writer reports it to the client
            _log.debug("an answer cannot be translated: %s", error.message)
            return b""

    def _failed(self, failure: Failure) -> bytes:
        if self.cancelled:
            return self.unfinished("cancelled")
        error = {"code": failure.code.lower(), "message": failure.message}
        return self.unfinished("failed", error)

    def unfinished(self, status: str, error: dict[str, Any] | None = None) -> bytes:
        """The ``response`` object without an answer."""
        try:
            asked = self.asked
        except DialectError:  # the provider may take what Remit cannot read
            asked = ModelCall(self._body.model, [], other={"background": self.background})
        head = response_object(
            asked,
            answer_id=self.response_id,
            created=self.created,
            model=self._body.model,
        )
        return dump({**head, "status": status, "error": error})

    def _renamed(self, answer: bytes) -> bytes:
        """A provider's own object under the id that the client was given before it was made."""
        answer = set_member(answer, ("id",), orjson.dumps(self.response_id))
        return set_member(answer, ("background",), b"true")


def input_of(body: Body) -> list[bytes]:
    """The items of a body's input."""
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
    """The id of a response or an item; empty where a client could not name it by that."""
    found = text_of(value.get("id"))
    return found if len(found) <= MAX_ID_CHARS and is_plain_text(found) else ""


def ids_in(response_id: str, answer: Mapping[str, Any]) -> list[str]:
    """Return the ids by which clients refer to an answer: the response's, and its items'."""
    output = answer.get("output")
    items = output if type(output) is list else []
    ids = [_id_in(item) for item in items if type(item) is dict]
    return list(dict.fromkeys([response_id, *filter(None, ids)]))
