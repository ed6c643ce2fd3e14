"""What an exchange's record keeps of a provider that says what no record can hold."""

from __future__ import annotations

from remit.gateway.records import prepare_exchange
from remit.ledger import Content, LedgerClient, LedgerEntry


def test_exact_texts_stay_where_something_else_has_to_be_put_in_words(
    ledger: LedgerClient,
) -> None:
    metadata = {
        "model_id": "a\x00b",
        "n": 2**60,
        "answer": Content.exact(b' {"model": "a\\u0000b"}'),
    }
    entry = LedgerEntry("EXCHANGE", "S", "SUCCESS", "r", metadata=metadata)
    prepared = prepare_exchange(ledger, entry, None)
    entry_id = ledger.transact(lambda tx: tx.append(prepared))
    assert ledger.exact(entry_id) == {"answer": b' {"model": "a\\u0000b"}'}
    assert ledger.read(entry_id).metadata["model_id"] == "a\ufffdb"
