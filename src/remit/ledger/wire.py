"""The body of a call over HTTP, put together again from what its record holds (SPEC 4.0)."""

from __future__ import annotations

from collections.abc import Mapping

from remit.ledger.content import Erased, ExactText
from remit.ledger.errors import LedgerError, LedgerFormatError

_EMPTY = b"[]"


def wire_body(texts: Mapping[str, ExactText], cut: Mapping[str, int]) -> bytes:
    """The body as it was sent, byte for byte.

    Args:
        texts: exact texts by metadata key, as :meth:`LedgerClient.exact` gives them:
            ``parameters``, and each name in ``cut``. A list stands for an array of its elements.
        cut: by name, the offset in bytes in ``parameters`` at which ``[]`` stands for the value.

    Raises:
        LedgerError: a part of it was erased.
        LedgerFormatError: ``texts`` and ``cut`` do not fit together.
    """
    parameters = _whole("parameters", texts)
    pieces: list[bytes] = []
    done = 0
    for name, offset in sorted(cut.items(), key=lambda item: item[1]):
        if offset < done or parameters[offset : offset + 2] != _EMPTY:
            raise LedgerFormatError(
                f"The recorded parameters have no place for {name} at byte {offset}.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            )
        pieces += (parameters[done:offset], _whole(name, texts))
        done = offset + len(_EMPTY)
    pieces.append(parameters[done:])
    return b"".join(pieces)


def _whole(name: str, texts: Mapping[str, ExactText]) -> bytes:
    text = texts.get(name)
    parts = text if isinstance(text, list) else [text]
    kept: list[bytes] = []
    for part in parts:
        if isinstance(part, Erased):
            raise LedgerError(f"The body of the call is not whole: in its {name} is {part}.")
        if part is None:
            raise LedgerFormatError(f"The record of the call has no {name}.")
        kept.append(part)
    return b"[" + b",".join(kept) + b"]" if isinstance(text, list) else kept[0]
