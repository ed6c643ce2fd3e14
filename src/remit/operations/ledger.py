"""Operations on the key of the ledger and the number of its entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remit.kernel.errors import NotFoundError
from remit.operations.operation import verb
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    pass


@verb(
    "ledger key", "GET /ledger/key", summary="Verifier key", needs="verify",
    media_type="text/plain", fails=(404,),
)  # fmt: skip
def read_verifier_key(root: RootPort, caller: Caller) -> str:
    """Print the key (origin+hash+key) that verifies checkpoints and proofs of this ledger.

    For independent proof, get the key from a place that the operator cannot change.

    Raises:
        NotFoundError: the ledger has no signing key.
        LedgerKeyError: the key's file is damaged, or the key is of another origin.
    """
    from remit.ledger import ledger_key

    if (key := ledger_key(root.place, root.settings.ledger).verifier_key()) is None:
        raise NotFoundError("The ledger has no signing key.", next_step="`remit init` creates one.")
    return f"{key}\n"


@verb("ledger stats", "GET /ledger/stats", summary="Number of entries", result="Stats")
def count_entries(root: RootPort, caller: Caller) -> dict[str, Any]:
    """Count entries by event type.

    Returns:
        ``entries`` (archived ones included), ``events`` (by event type, without archived ones),
        ``archived``, ``head`` (``seq`` and ``entry_hash``, None without entries) and ``location``.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    ledger = root.ledger
    head, events, entries = ledger.head(), ledger.count_by_event(), ledger.count()
    return {
        "entries": entries, "events": events, "archived": entries - sum(events.values()),
        "head": {"seq": head[0], "entry_hash": head[1]} if head else None,
        "location": ledger.location,
    }  # fmt: skip
