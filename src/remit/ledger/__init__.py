"""The ledger: an append-only record, its format, its stores and its verification.

The room owns entries, commitments to content, the Merkle tree, checkpoints, erasure, segments,
exports, and every table of the database. The room knows no meaning of an event beyond the keys
that the event declares.

Invariants: an entry that was acknowledged is durable; entries are never changed; erased content is
gone while its commitment stays; the record format is frozen.

Start reading in :mod:`remit.ledger.client` and ``docs/ledger-format.md``. Doors: ``segments`` moves
entries out of the database, ``log_of_logs`` commits to tenants' ledgers, ``tlog`` implements
transparency-log formats, ``usage`` sums calls, ``witness`` cosigns checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names
from remit.ledger.archived_ranges import archived_to, left_of
from remit.ledger.caller_deletion import erasures_after
from remit.ledger.client import LedgerClient
from remit.ledger.clock import Clock, time_text, utc_now
from remit.ledger.contents import EXACT, Content, EncodedValue, Erased, ExactText, content
from remit.ledger.entry import LedgerEntry, entry_id, parse_entry_id
from remit.ledger.erasure import CACHED, ErasureReport, first_erased
from remit.ledger.errors import (
    AFTER_DAMAGE,
    EntryArchivedError,
    EntryNotFoundError,
    ErasureError,
    ExportFormatError,
    LedgerClosedError,
    LedgerConnectionError,
    LedgerError,
    LedgerFormatError,
    LedgerKeyError,
    LedgerLayoutError,
    LedgerRollbackError,
    LedgerUnavailableError,
    LedgerWriteError,
    NoSignerError,
    RecordTooLargeError,
    ScopeError,
)
from remit.ledger.events import EVENTS, KERNEL_ROWS, Event, is_authentic
from remit.ledger.filter import instant
from remit.ledger.handles import LedgerPort, LedgerReader, ScopedLedger
from remit.ledger.key_files import LedgerKey, known_as
from remit.ledger.last_signed_head import KeptHead
from remit.ledger.projection import Projection, Row, State, apply, entries_of, fold_entries
from remit.ledger.projection_audit import (
    Audit,
    Difference,
    Folded,
    audit_tables,
    check_tables,
    folded_rows,
)
from remit.ledger.proofs import proof_bundle
from remit.ledger.record import columns_of, erasure_digest, is_plain_text, require_plain_text
from remit.ledger.record_builder import Prepared
from remit.ledger.recorded_bodies import call_answer, call_body, wire_body
from remit.ledger.root_ledger import RetentionSchedule, ledger_key, open_root_ledger, remember_place
from remit.ledger.schema import LAYOUT_VERSION, STATE_TABLES, TABLES
from remit.ledger.store import Stage, Transaction, Write
from remit.ledger.table_checks import (
    Finding,
    Select,
    Uncheckable,
    imported_size,
    of_other_types,
    readable,
    reason_of,
    settled,
    until_failure,
)
from remit.ledger.usage_tables import USAGE_TABLES
from remit.ledger.verification.marks import Marks, keep_mark, read_mark
from remit.ledger.verification.report import Problem, Progress, StateCheck, VerificationReport

if TYPE_CHECKING:
    from remit.ledger.cursor_exports import Batch, Cursor, make_batch, read_batches
    from remit.ledger.extracts import Extract, make_extract, read_extract
    from remit.ledger.forks import fork
    from remit.ledger.postgres.connection import masked
    from remit.ledger.postgres.namespaces import drop_schema, has_schema, make_schema, rename_schema
    from remit.ledger.relocation import copy_ledger
    from remit.ledger.run_index import check_indexes
    from remit.ledger.sqlite.file_removal import remove_ledger_file, rename_ledger_file
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "AFTER_DAMAGE",
    "CACHED",
    "EVENTS",
    "EXACT",
    "KERNEL_ROWS",
    "LAYOUT_VERSION",
    "STATE_TABLES",
    "TABLES",
    "USAGE_TABLES",
    "Audit",
    "Batch",
    "Clock",
    "Content",
    "Cursor",
    "Difference",
    "EncodedValue",
    "EntryArchivedError",
    "EntryNotFoundError",
    "Erased",
    "ErasureError",
    "ErasureReport",
    "Event",
    "ExactText",
    "ExportFormatError",
    "Extract",
    "Finding",
    "Folded",
    "KeptHead",
    "LedgerClient",
    "LedgerClosedError",
    "LedgerConnectionError",
    "LedgerEntry",
    "LedgerError",
    "LedgerFormatError",
    "LedgerKey",
    "LedgerKeyError",
    "LedgerLayoutError",
    "LedgerPort",
    "LedgerReader",
    "LedgerRollbackError",
    "LedgerUnavailableError",
    "LedgerWriteError",
    "Marks",
    "NoSignerError",
    "Prepared",
    "Problem",
    "Progress",
    "Projection",
    "RecordTooLargeError",
    "RetentionSchedule",
    "Row",
    "ScopeError",
    "ScopedLedger",
    "Select",
    "Stage",
    "State",
    "StateCheck",
    "Transaction",
    "Uncheckable",
    "VerificationReport",
    "Write",
    "apply",
    "archived_to",
    "audit_tables",
    "call_answer",
    "call_body",
    "check_indexes",
    "check_tables",
    "columns_of",
    "content",
    "copy_ledger",
    "drop_schema",
    "entries_of",
    "entry_id",
    "erasure_digest",
    "erasures_after",
    "first_erased",
    "fold_entries",
    "folded_rows",
    "fork",
    "has_schema",
    "imported_size",
    "instant",
    "is_authentic",
    "is_plain_text",
    "keep_mark",
    "known_as",
    "ledger_key",
    "left_of",
    "make_batch",
    "make_extract",
    "make_schema",
    "masked",
    "of_other_types",
    "open_root_ledger",
    "parse_entry_id",
    "proof_bundle",
    "read_batches",
    "read_extract",
    "read_mark",
    "readable",
    "reason_of",
    "remember_place",
    "remove_ledger_file",
    "rename_ledger_file",
    "rename_schema",
    "require_plain_text",
    "settled",
    "time_text",
    "until_failure",
    "utc_now",
    "wire_body",
]
