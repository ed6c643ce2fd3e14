"""A tier writes its own entries and sees no higher one's."""

from __future__ import annotations

import pytest

from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    EntryNotFoundError,
    LedgerClient,
    LedgerEntry,
    ScopedLedger,
    ScopeError,
)


def _entry(tier: str | None = None, order: str | None = None) -> LedgerEntry:
    metadata = {}
    if tier:
        metadata["scope"] = {"tier": tier}
    if order:
        metadata["provenance"] = {"work_order_id": order}
    return LedgerEntry("E", "S", "D", "r", metadata=metadata)


def test_what_each_tier_sees(ledger: LedgerClient) -> None:
    for tier, order in (("hot", None), ("ho2", "WO-1"), ("ho1", "WO-1"), ("ho1", "WO-2")):
        ledger.write(_entry(tier, order))
    ledger.write(_entry())

    def seen(tier: str, order: str | None = None) -> list[str]:
        return [e.id[-1] for e in ledger.scoped(tier=tier, work_order_id=order).query()]

    assert seen("hot") == ["0", "1", "2", "3", "4"]
    assert seen("ho2") == ["1", "2", "3"]
    assert seen("ho1", "WO-1") == ["2"]
    assert seen("ho1") == []


def test_a_filter_does_not_widen_the_view(ledger: LedgerClient) -> None:
    ledger.write(_entry("ho2", "WO-1"))
    ledger.write(_entry("ho1", "WO-2"))
    worker = ledger.scoped(tier="ho1", work_order_id="WO-1")
    assert list(worker.query(tier="ho2")) == []
    assert list(worker.query(work_order_id="WO-2")) == []
    for entry_id in ("LED-00000000", "LED-00000001"):
        with pytest.raises(EntryNotFoundError):
            worker.read(entry_id)


def test_limit_counts_what_is_visible(ledger: LedgerClient) -> None:
    for _ in range(5):
        ledger.write(_entry("hot"))
        ledger.write(_entry("ho2"))
    found = list(ledger.scoped(tier="ho2").query(limit=3, order="desc"))
    assert [e.id[-1] for e in found] == ["9", "7", "5"]


def test_it_writes_only_its_own(ledger: LedgerClient) -> None:
    worker = ledger.scoped(tier="ho1", work_order_id="WO-1")
    entry_id = worker.write(_entry(order="WO-1"))
    assert worker.read(entry_id).metadata["scope"] == {"tier": "ho1"}
    for foreign in (_entry("ho2", "WO-1"), _entry("ho1", "WO-2")):
        with pytest.raises(ScopeError):
            worker.write(foreign)
    assert ledger.count() == 1
    with pytest.raises(ScopeError):
        worker.write(LedgerEntry("E", "S", "D", "r", metadata={"tier": ""}))
    unnamed = worker.write(LedgerEntry("E", "S", "D", "r"))
    assert worker.read(unnamed).metadata["provenance"] == {"work_order_id": "WO-1"}


def test_a_handle_is_narrowed_to_an_order_and_never_widened(ledger: LedgerClient) -> None:
    worker = ledger.scoped(tier="ho1")
    one = ScopedLedger(worker, tier="ho1", work_order_id="WO-1")
    entry_id = one.write(_entry())
    assert one.read(entry_id).metadata["provenance"] == {"work_order_id": "WO-1"}
    with pytest.raises(InvalidInputError):
        ScopedLedger(worker, tier="hot")
    assert list(ScopedLedger(one, tier="ho1", work_order_id="WO-2").query()) == []


def test_there_are_three_tiers(ledger: LedgerClient) -> None:
    with pytest.raises(InvalidInputError):
        ledger.scoped(tier="ho3")
