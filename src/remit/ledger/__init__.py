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
from remit.ledger.archived_ranges import archived_to as archived_to, left_of as left_of
from remit.ledger.caller_deletion import erasures_after as erasures_after
from remit.ledger.client import LedgerClient as LedgerClient
from remit.ledger.clock import Clock as Clock, time_text as time_text, utc_now as utc_now
from remit.ledger.contents import (
    EXACT as EXACT,
    Content as Content,
    EncodedValue as EncodedValue,
    Erased as Erased,
    ExactText as ExactText,
    content as content,
)
from remit.ledger.entry import (
    LedgerEntry as LedgerEntry,
    entry_id as entry_id,
    parse_entry_id as parse_entry_id,
)
from remit.ledger.entry_reader import as_bytes as as_bytes, pages as pages
from remit.ledger.erasure import (
    CACHED as CACHED,
    ErasureReport as ErasureReport,
    first_erased as first_erased,
)
from remit.ledger.errors import (
    AFTER_DAMAGE as AFTER_DAMAGE,
    EntryArchivedError as EntryArchivedError,
    EntryNotFoundError as EntryNotFoundError,
    ErasureError as ErasureError,
    ExportFormatError as ExportFormatError,
    LedgerClosedError as LedgerClosedError,
    LedgerConnectionError as LedgerConnectionError,
    LedgerError as LedgerError,
    LedgerFormatError as LedgerFormatError,
    LedgerKeyError as LedgerKeyError,
    LedgerLayoutError as LedgerLayoutError,
    LedgerRollbackError as LedgerRollbackError,
    LedgerUnavailableError as LedgerUnavailableError,
    LedgerWriteError as LedgerWriteError,
    NoSignerError as NoSignerError,
    RecordTooLargeError as RecordTooLargeError,
    ScopeError as ScopeError,
)
from remit.ledger.events import (
    EVENTS as EVENTS,
    KERNEL_ROWS as KERNEL_ROWS,
    Event as Event,
    is_authentic as is_authentic,
)
from remit.ledger.filter import instant as instant
from remit.ledger.handles import (
    LedgerPort as LedgerPort,
    LedgerReader as LedgerReader,
    ScopedLedger as ScopedLedger,
)
from remit.ledger.key_files import LedgerKey as LedgerKey, known_as as known_as
from remit.ledger.last_signed_head import KeptHead as KeptHead
from remit.ledger.projection import (
    Projection as Projection,
    Row as Row,
    State as State,
    apply as apply,
    entries_of as entries_of,
    fold_entries as fold_entries,
)
from remit.ledger.projection_audit import (
    Audit as Audit,
    Difference as Difference,
    Folded as Folded,
    audit_tables as audit_tables,
    check_tables as check_tables,
    folded_rows as folded_rows,
)
from remit.ledger.proofs import proof_bundle as proof_bundle
from remit.ledger.record import (
    columns_of as columns_of,
    erasure_digest as erasure_digest,
    is_plain_text as is_plain_text,
    require_plain_text as require_plain_text,
)
from remit.ledger.record_builder import Prepared as Prepared
from remit.ledger.recorded_bodies import (
    call_answer as call_answer,
    call_body as call_body,
    wire_body as wire_body,
)
from remit.ledger.root_ledger import (
    RetentionSchedule as RetentionSchedule,
    ledger_key as ledger_key,
    open_root_ledger as open_root_ledger,
    remember_place as remember_place,
)
from remit.ledger.schema import (
    LAYOUT_VERSION as LAYOUT_VERSION,
    STATE_TABLES as STATE_TABLES,
    TABLES as TABLES,
)
from remit.ledger.store import Stage as Stage, Transaction as Transaction, Write as Write
from remit.ledger.table_checks import (
    Finding as Finding,
    Select as Select,
    Uncheckable as Uncheckable,
    imported_size as imported_size,
    locked as locked,
    of_other_types as of_other_types,
    readable as readable,
    reason_of as reason_of,
    settled as settled,
    until_failure as until_failure,
)
from remit.ledger.usage_tables import USAGE_TABLES as USAGE_TABLES
from remit.ledger.verification.marks import (
    Marks as Marks,
    keep_mark as keep_mark,
    read_mark as read_mark,
)
from remit.ledger.verification.report import (
    Problem as Problem,
    Progress as Progress,
    StateCheck as StateCheck,
    VerificationReport as VerificationReport,
)

if TYPE_CHECKING:
    from remit.ledger.cursor_exports import (
        Batch as Batch,
        Cursor as Cursor,
        make_batch as make_batch,
        read_batches as read_batches,
    )
    from remit.ledger.extracts import (
        EXTRACT_FORMAT as EXTRACT_FORMAT,
        Extract as Extract,
        make_extract as make_extract,
        read_extract as read_extract,
    )
    from remit.ledger.forks import fork as fork
    from remit.ledger.postgres.connection import masked as masked
    from remit.ledger.postgres.namespaces import (
        drop_schema as drop_schema,
        has_schema as has_schema,
        make_schema as make_schema,
        rename_schema as rename_schema,
    )
    from remit.ledger.relocation import copy_ledger as copy_ledger
    from remit.ledger.run_index import check_indexes as check_indexes
    from remit.ledger.sqlite.file_removal import (
        remove_ledger_file as remove_ledger_file,
        rename_ledger_file as rename_ledger_file,
    )
else:
    __getattr__ = lazy_names(__name__)
