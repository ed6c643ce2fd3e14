"""The append-only record: one ledger, its format, its stores, its verification (SPEC 3)."""

from remit.ledger.client import LedgerClient
from remit.ledger.content import Content, Erased, content
from remit.ledger.entry import LedgerEntry
from remit.ledger.errors import (
    EntryNotFoundError,
    LedgerClosedError,
    LedgerError,
    LedgerFormatError,
    LedgerWriteError,
    NoSignerError,
    RecordTooLargeError,
    ScopeError,
)
from remit.ledger.events import EVENTS, Event
from remit.ledger.record import Prepared
from remit.ledger.scoped import LedgerPort, ScopedLedger
from remit.ledger.store import Transaction
from remit.ledger.verification import Problem, VerificationReport, erasure_digest

__all__ = [
    "EVENTS",
    "Content",
    "EntryNotFoundError",
    "Erased",
    "Event",
    "LedgerClient",
    "LedgerClosedError",
    "LedgerEntry",
    "LedgerError",
    "LedgerFormatError",
    "LedgerPort",
    "LedgerWriteError",
    "NoSignerError",
    "Prepared",
    "Problem",
    "RecordTooLargeError",
    "ScopeError",
    "ScopedLedger",
    "Transaction",
    "VerificationReport",
    "content",
    "erasure_digest",
]
