"""The decision trail: the recorded thoughts of agents, in one hash chain for each task.

The package owns ``THOUGHT_RECORD`` entries and the table ``thoughts``, their verification, and
their JSON lines. Each thought is one entry and one row, written in one transaction.

Invariant: a chain never forks, and each record contains the hash of the one before.

Start reading in ``record`` (fields and hash) and ``append``.
"""

from remit.routing.trail.append import (
    acreate_thought_record,
    append_thoughts,
    create_thought_record,
    thought_to_note,
)
from remit.routing.trail.chains import prepare_table
from remit.routing.trail.imports import import_thought_records
from remit.routing.trail.lines import export_thought_records
from remit.routing.trail.table import get_thought_record, iter_thought_records, list_thought_records
from remit.routing.trail.thought_record import (
    DuplicateThoughtError,
    InvalidThoughtError,
    ThoughtInput,
    ThoughtLineError,
    ThoughtNotFoundError,
    ThoughtRecord,
    ThoughtType,
    TrailDamagedError,
    TrailError,
    hash_thought,
    read_input,
)
from remit.routing.trail.verification import TrailProblem, TrailReport, check_trail, verify_trail

__all__ = [
    "DuplicateThoughtError",
    "InvalidThoughtError",
    "ThoughtInput",
    "ThoughtLineError",
    "ThoughtNotFoundError",
    "ThoughtRecord",
    "ThoughtType",
    "TrailDamagedError",
    "TrailError",
    "TrailProblem",
    "TrailReport",
    "acreate_thought_record",
    "append_thoughts",
    "check_trail",
    "create_thought_record",
    "export_thought_records",
    "get_thought_record",
    "hash_thought",
    "import_thought_records",
    "iter_thought_records",
    "list_thought_records",
    "prepare_table",
    "read_input",
    "thought_to_note",
    "verify_trail",
]
