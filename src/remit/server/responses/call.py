"""One call of the Responses API: what it goes on from, and what stands on record for its id."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from remit.gateway import MAX_ID_CHARS
from remit.gateway.call import Attempt, Candidate, Failure
from remit.gateway.keeping import KeptId
from remit.kernel.errors import RemitError
from remit.kernel.json_text import JsonTextError, dump, elements, load, spans
from remit.ledger import Content, is_plain_text
from remit.providers import ProviderResponse
from remit.providers.dialects import ModelCall, read_answer, read_request, write_answer
from remit.providers.dialects.responses.answer import response_object
from remit.providers.wire.body import Body
from remit.server.responses.items import array, id_of, items_in, portable, type_of
from remit.server.responses.turns import NATIVE, Turn, Turns, text_of

_log = logging.getLogger("remit.server")

_UNFOLDED = "the chain is unfolded from the record: this provider does not keep it"
_KNOWN_AS = "the provider's own id of the response"
_FROM_RECORD = "items that the provider does not keep, from the record"


class ResponseCall:
    """The keeper of one call (see :class:`remit.gateway.keeping.Keeper`).

    Args:
        turns: the record.
        body: the client's.
        owner: whose the answer will be.
        session_id: of the call.
        previous: the turn that it goes on from.
        referred: by id, the items that the input refers to, and the turns that they are of.

    Attributes:
        response_id: the id of an answer that Remit makes; one of the provider's own form keeps
            the id that the provider gave it.
        created: when the call began, seconds since 1970.
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
    ) -> None:
        self.response_id = f"resp_{secrets.token_hex(24)}"
        self.created = int(time.time())
        self.replied = b""
        self._turns = turns
        self._body = body
        self._owner = owner
        self._session_id = session_id
        self._previous = previous
        self._referred = referred or {}
        self._call: ModelCall | None = None

    @property
    def stored(self) -> bool:
        """Whether the client may name the answer later."""
        return self._body.value.get("store") is not False

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

    async def body_for(self, provider_id: str, *, speaks: bool) -> Body:
        """See :class:`remit.gateway.keeping.Keeper`."""
        body, previous = self._body, self._previous
        if self._referred:
            body = self._with_items(body, provider_id, speaks)
        if previous is None:
            return body
        if speaks and previous.provider_id == provider_id:
            kept = self._turns.kept_by_provider(previous)
            if kept:
                return self._continuing(body, kept)
        items = await asyncio.to_thread(self._turns.unfolded, previous, provider_id, speaks=speaks)
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
        """See :class:`remit.gateway.keeping.Keeper`."""
        if self._is_native(to) or not (self.stored and self._body.stream):
            return ()
        return (self._kept(self.response_id),)

    def on_record(
        self, metadata: dict[str, Any], attempt: Attempt, result: ProviderResponse | Failure
    ) -> Sequence[KeptId]:
        """See :class:`remit.gateway.keeping.Keeper`."""
        if self._previous is not None:
            metadata["continues"] = self._previous.entry.id
        if not self.stored:
            metadata["stored"] = False
        native = self._is_native(attempt.to)
        sent = attempt.to.outgoing
        if not native or self._referred or (sent is not None and _changed_input(sent.body)):
            metadata["asked"] = self._asked()
        if native:
            answer = _answer_text(attempt, result)
            response_id = _id_in(_value(answer))
        else:
            response_id = self.response_id
            answer = self.replied = self._reply(metadata, result)
            if answer:
                metadata["replied"] = Content.exact(answer)
        if response_id:
            metadata["response_id"] = response_id
        if not response_id or not self.stored or not (answer or self._body.stream):
            return ()
        return [self._kept(identity) for identity in _ids_in(response_id, answer)]

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

    def _kept(self, identity: str) -> KeptId:
        return identity, self._owner, self._session_id

    def _is_native(self, to: Candidate) -> bool:
        return to.outgoing is not None and to.outgoing.body.endpoint.name == NATIVE

    def _reply(self, metadata: dict[str, Any], result: ProviderResponse | Failure) -> bytes:
        """The object that the client gets of an answer in another dialect; empty: it gets none."""
        try:
            if isinstance(result, Failure):
                return self._failed(result) if self._body.stream else b""
            answer = result
            if result.reply is not None:
                answer = read_answer(result.reply.endpoint, load(result.reply.body))
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
        except RemitError as error:  # the client is told so by who answers it
            _log.debug("an answer cannot be translated: %s", error.message)
            return b""

    def _failed(self, failure: Failure) -> bytes:
        head = response_object(
            self.asked,
            answer_id=self.response_id,
            created=self.created,
            model=self._body.model,
        )
        error = {"code": failure.code.lower(), "message": failure.message}
        return dump({**head, "status": "failed", "error": error})


def input_of(body: Body) -> list[bytes]:
    """The items of a body's input."""
    place = spans(body.raw, ("input",)).get("input")
    return [] if place is None else items_in(body.raw[slice(*place)])


def _changed_input(body: Body) -> bool:
    return any(change["path"] in ("/input", "") for change in body.changed)


def _answer_text(attempt: Attempt, result: ProviderResponse | Failure) -> bytes:
    if attempt.arrived:
        return attempt.arrived
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


def _ids_in(response_id: str, answer: bytes) -> list[str]:
    """The response's id, and those of its output items: clients refer to these too."""
    output = _value(answer).get("output")
    items = output if type(output) is list else []
    ids = [_id_in(item) for item in items if type(item) is dict]
    return list(dict.fromkeys([response_id, *filter(None, ids)]))
