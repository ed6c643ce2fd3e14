"""The answer cache: equal requests of one caller are answered from the record, if settings allow.

A row of ``idempotency`` leads from the hash of a request to its ``EXCHANGE``. A row is a hint: the
recorded request, its key, its contract and its age are compared before an answer is used. Every
erasure deletes all rows in its own transaction, and a hit is recorded only while its row exists.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from remit.gateway.admission import caller_of
from remit.gateway.config import RouterConfig
from remit.gateway.key_queries import FIND_CACHED, CachedAnswer, hidden_name
from remit.gateway.recorded_run import neutral_text
from remit.gateway.transport import read_result
from remit.gateway.validation import check_output, response_schema
from remit.gateway.values import Call, Candidate
from remit.kernel.errors import RemitError
from remit.kernel.json_text import dump
from remit.ledger import CACHED, LedgerClient, Transaction, call_answer, call_body
from remit.providers import ProviderResponse

_ENDS = ("stop", "tool_use")
_REMEMBER = (
    "INSERT INTO idempotency (caller, idempotency_key, owner, token, exchange_entry_id, until_ms) "
    f"VALUES (?, ?, '{CACHED}', '{CACHED}', ?, ?) ON CONFLICT (caller, idempotency_key) DO UPDATE "
    "SET exchange_entry_id = excluded.exchange_entry_id, until_ms = excluded.until_ms"
)


class AnswerCache:
    """Finds and remembers answers for the keys and contracts that the settings name.

    :meth:`allows` decides whether a call takes part, :meth:`find` reads a recorded answer, and
    :meth:`remember` gives the write that remembers a new one. Answers are looked up in the ledger's
    database; nothing is kept in memory.

    Args:
        ledger: holds the answers.
        config: the keys, the contracts and the greatest age.
    """

    def __init__(self, ledger: LedgerClient, config: RouterConfig) -> None:
        self._ledger = ledger
        self._keys, self._contracts = (
            frozenset(config.cache_keys),
            frozenset(config.cache_contracts),
        )
        self._age_ms = int(config.cache_s * 1000)

    def allows(self, call: Call, to: Candidate) -> bool:
        """Return True if a call may be answered from the record.

        The settings must name its contract, or its key by id or name. False for routed calls,
        stored responses, calls with an idempotency key, calls for another person, and endpoints
        that do not answer with text.

        Args:
            call: the admitted call.
            to: the request that would be sent.
        """
        request, identity = call.request, call.identity
        if request.contract_id not in self._contracts and (
            identity is None or self._keys.isdisjoint((identity.key_id, identity.name))
        ):
            return False
        return (
            request.keeper is None
            and not request.idempotency_key
            and call.on_record is None
            and not (call.choice is not None and call.choice.is_routed)
            and (identity is None or identity.within is None)
            and (to.outgoing is None or bool(to.outgoing.body.endpoint.output_limit))
        )

    async def find(self, call: Call, to: Candidate) -> CachedAnswer | None:
        """Return the recorded answer to an equal request; None without one.

        Sets ``call.cache_name``, under which :meth:`remember` stores a new answer. The record must
        be a success of the same key, contract and request, not older than the greatest age, and
        must fit the output schema. A record that cannot be read gives None. The database is read in
        a thread.

        Args:
            call: the call.
            to: the request that would be sent.

        Raises:
            JsonTextError: the request is nested too deep.
            NotCanonicalError: the messages have no canonical form.
        """
        caller = caller_of(call)
        call.cache_name = name = caller, hidden_name(f"cache\x00{caller}", _digest(call, to))
        try:
            return await asyncio.to_thread(self._read, call, to, name)
        except RemitError:  # Erased or archived meanwhile, or the ledger cannot be read.
            return None

    def _read(self, call: Call, to: Candidate, name: tuple[str, str]) -> CachedAnswer | None:
        now_ms = int(time.time() * 1000)
        rows = self._ledger.select(FIND_CACHED, (*name, now_ms))
        if not rows:
            return None
        entry = self._ledger.read(str(rows[0][0]))
        meta, request = entry.metadata, call.request
        made_ms = datetime.fromisoformat(entry.timestamp).timestamp() * 1000
        key_id = call.identity.key_id if call.identity is not None else ""
        if (
            entry.event_type != "EXCHANGE"
            or meta.get("outcome") != "success"
            or "cached_from" in meta
            or meta.get("key_id", "") != key_id
            or meta["contract_id"] != request.contract_id
            or now_ms - made_ms > self._age_ms
        ):
            return None
        if request.body is not None and to.outgoing is not None:
            if call_body(self._ledger, entry.id) != to.outgoing.body.raw:
                return None
            answer = read_result(meta["wire"], 200, call_answer(self._ledger, entry.id))
        else:
            sent = neutral_text(to.sent.messages, to.request.tools or ())
            if neutral_text(meta["prompt"], meta.get("tools") or ()) != sent:
                return None
            answer = ProviderResponse(
                meta["response"], meta["model_id"], 0, 0, finish_reason=meta["finish_reason"],
                content_blocks=tuple(dict(one) for one in meta.get("content_blocks") or ()),
            )  # fmt: skip
        schema = request.output_schema
        if schema is not None and check_output(schema, answer.content):
            return None
        return CachedAnswer(name, entry.id, answer)

    def remember(
        self, call: Call, answer: ProviderResponse
    ) -> Callable[[Transaction, str], None] | None:
        """Return the function that remembers an answer in the transaction that records it.

        None for a call outside the cache, for an incomplete answer, and for an answer of which the
        record has only the text.

        Args:
            call: the call.
            answer: the provider's answer.
        """
        if call.cache_name is None or answer.finish_reason not in _ENDS:
            return None
        if call.request.body is None and answer.more_than_text:
            return None
        return functools.partial(_write, name=call.cache_name, age_ms=self._age_ms)


def _write(tx: Transaction, exchange_id: str, *, name: tuple[str, str], age_ms: int) -> None:
    tx.execute_many(_REMEMBER, [(*name, exchange_id, tx.now_ms + age_ms)])


def _digest(call: Call, to: Candidate) -> str:
    """Return the SHA-256 of a request with everything that its answer depends on, 64 hex digits."""
    request, outgoing = call.request, to.outgoing
    parts: list[Any] = [
        to.provider_id, to.model_id, request.contract_id, request.contract_version or "",
        request.subject_id or "", request.user_id or "", request.query or "",
    ]  # fmt: skip
    if request.body is not None and outgoing is not None:
        parts += [outgoing.body.endpoint.name, sorted(outgoing.headers.items()), outgoing.path]
        raw = outgoing.body.raw
    else:
        parts += [request.max_tokens, request.temperature, response_schema(to.request)]
        raw = neutral_text(to.sent.messages, to.request.tools or ())
    return hashlib.sha256(dump(parts) + b"\x00" + raw).hexdigest()
