"""Bodies and answers of calls over HTTP, restored byte for byte from the record."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from remit.kernel.errors import InvalidInputError
from remit.ledger.contents import EXACT, Erased, ExactText, StoredValue
from remit.ledger.errors import LedgerError, LedgerFormatError

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

_EMPTY = b"[]"

Resolve = Callable[..., Any]
"""Returns the content of a commitment object, read by its second argument if one is given."""


def call_body(ledger: LedgerClient, entry_id: str) -> bytes:
    """Return the request body that an ``EXCHANGE`` of a call over HTTP recorded, byte for byte.

    Args:
        ledger: the ledger; only read.
        entry_id: id of the entry.

    Raises:
        EntryNotFoundError: there is no such entry; EntryArchivedError if it is in a segment that
            is not attached.
        InvalidInputError: the entry has no recorded body: it is not a call in a provider's dialect.
        LedgerError: a part of the body was erased, or the record is damaged.
    """
    entry = ledger.read(entry_id)
    cut = entry.metadata.get("cut")
    if not isinstance(cut, list):
        raise InvalidInputError(
            f"{entry_id} has no body as it was on the wire.",
            next_step="Only the EXCHANGE of a call over HTTP has one (metadata key wire); "
            f"`remit ledger show {entry_id}` prints what other entries hold.",
        )
    return wire_body(ledger.exact(entry_id), cut)


def call_answer(ledger: LedgerClient, entry_id: str) -> bytes:
    """Return the answer of an ``EXCHANGE``: its bytes, or the assembled answer of a stream.

    An answer that was recorded as text, because it is not JSON, is returned in UTF-8.

    Args:
        ledger: the ledger; only read.
        entry_id: id of the entry.

    Raises:
        EntryNotFoundError: there is no such entry; EntryArchivedError if it is in a segment that is
            not attached.
        InvalidInputError: the entry has no recorded answer. The answer of a call by Python that is
            only a text is in ``response`` instead.
        LedgerError: the answer was erased, or the record is damaged.
    """
    entry = ledger.read(entry_id)
    text = ledger.exact(entry_id).get("answer")
    if text is None:
        raise InvalidInputError(
            f"{entry_id} has no answer as it was on the wire.",
            next_step="Only the EXCHANGE of a call over HTTP that was answered has one; "
            f"`remit ledger show {entry_id}` prints what other entries hold.",
        )
    commitment = orjson.loads(ledger.read_record(entry_id))["metadata"]["answer"]
    if commitment.get("form") != EXACT and isinstance(said := entry.metadata["answer"], str):
        return said.encode()
    return _whole("answer", {"answer": text})


def wire_body(texts: Mapping[str, ExactText], cut: Iterable[Sequence[Any]]) -> bytes:
    """Return a request body byte for byte as sent: its parts joined again.

    Args:
        texts: exact texts by metadata key, from :meth:`LedgerClient.exact`: ``parameters``, and
            each name in ``cut``. A list stands for an array of its elements.
        cut: pairs of a name and the byte offset in ``parameters`` at which ``[]`` replaces its
            value.

    Raises:
        LedgerError: a part of the body was erased.
        LedgerFormatError: ``texts`` and ``cut`` do not fit together.
    """
    parameters = _whole("parameters", texts)
    pieces: list[bytes] = []
    done = 0
    for name, offset in sorted(cut, key=lambda pair: int(pair[1])):
        if offset < done or parameters[offset : offset + 2] != _EMPTY:
            raise LedgerFormatError(
                f"The recorded parameters have no place for {name} at byte {offset}.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            )
        pieces += (parameters[done:offset], _whole(name, texts))
        done = offset + len(_EMPTY)
    pieces.append(parameters[done:])
    return b"".join(pieces)


def context_hash(metadata: Mapping[str, Any], resolve: Resolve) -> str | Erased:
    """Return the SHA-256 of the request that an exchange recorded, in 64 hex digits.

    The hash covers the body of a call over HTTP; otherwise the prompt's UTF-8, or the messages as
    one JCS array.

    Args:
        metadata: metadata of the record, with commitments.
        resolve: returns the content of a commitment object, or its bytes; its errors are raised.

    Returns:
        The hash; or the mark of the first part, by name, that was erased or is missing.

    Raises:
        LedgerFormatError: the recorded parts of a body do not fit together.
    """
    names = {"prompt"}
    if "cut" in metadata:
        names = {"parameters", *(name for name, _ in metadata["cut"])}
    texts: dict[str, Any] = {}
    for name in sorted(names):
        item = metadata.get(name)
        text: Any = resolve(item, StoredValue.encoded) if isinstance(item, dict) else None
        for part in text if isinstance(text, list) else [text]:
            if not isinstance(part, bytes):
                return part if isinstance(part, Erased) else Erased()
        texts[name] = text
    if "cut" in metadata:
        return hashlib.sha256(wire_body(texts, metadata["cut"])).hexdigest()
    prompt = _whole("prompt", texts)
    if prompt[:1] == b'"':
        prompt = orjson.loads(prompt).encode()
    return hashlib.sha256(prompt).hexdigest()


def _whole(name: str, texts: Mapping[str, ExactText]) -> bytes:
    text = texts.get(name)
    parts = text if isinstance(text, list) else [text]
    kept: list[bytes] = []
    for part in parts:
        if isinstance(part, Erased):
            raise LedgerError(f"The record of the call is incomplete: its {name} is {part}.")
        if part is None:
            raise LedgerFormatError(f"The record of the call has no {name}.")
        kept.append(part)
    return b"[" + b",".join(kept) + b"]" if isinstance(text, list) else kept[0]
