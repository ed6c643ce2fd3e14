"""The tables of a ledger, the same on every engine (documented in ``docs/ledger-format.md``)."""

from __future__ import annotations

from remit.ledger.record import INDEXED

__all__ = ["COLUMNS", "LAYOUT_VERSION", "NARROWEST_FIRST", "TABLES"]

LAYOUT_VERSION = 2
"""The layout that this version writes; older ones are migrated, newer ones refused."""

COLUMNS = ("id", "entry_hash", "timestamp", "event_type", "submission_id", *INDEXED)
"""Columns of ``entries`` between ``seq`` and ``record``."""

TABLES: dict[str, tuple[str, ...]] = {
    "entries": ("seq", *COLUMNS, "record"),
    "contents": (
        "content_id", "commitment", "scope", "digest", "nonce", "bytes", "codec", "value",
    ),
    "message_steps": (
        "step_id", "step", "parent_id", "content_id", "commitment", "position",
    ),
    "shown_contents": ("seq", "content_id"),
    "shown_lists": ("seq", "step_id"),
    "content_subjects": ("subject_id", "content_id"),
    "erasures": ("commitment", "seq"),
    "tree_hashes": ("level", "idx", "hash"),
    "checkpoints": ("size", "created", "note"),
    "ledger_info": ("name", "value"),
    "migrations": ("version", "applied"),
}  # fmt: skip
"""Every table and its columns, in the order in which rows are written."""

NARROWEST_FIRST = (
    "work_order_id",
    "session_id",
    "submission_id",
    "agent_id",
    "contract_id",
    "event_type",
    "framework_id",
    "model_id",
    "outcome",
    "tier",
)
"""Which column drives a search by several, the most telling first."""
