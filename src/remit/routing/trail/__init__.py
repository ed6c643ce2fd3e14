"""The decision trail: the recorded thoughts of agents, in one hash chain for each task.

The package owns ``THOUGHT_RECORD`` entries and the table ``thoughts``, their verification, and
their JSON lines. Each thought is one entry and one row, written in one transaction.

Invariant: a chain never forks, and each record contains the hash of the one before.

Start reading in ``record`` (fields and hash) and ``append``.
"""

from remit.routing.trail.append import (
    acreate_thought_record as acreate_thought_record,
    append_thoughts as append_thoughts,
    create_thought_record as create_thought_record,
    thought_to_note as thought_to_note,
)
from remit.routing.trail.chains import prepare_table as prepare_table
from remit.routing.trail.imports import import_thought_records as import_thought_records
from remit.routing.trail.lines import export_thought_records as export_thought_records
from remit.routing.trail.table import (
    get_thought_record as get_thought_record,
    iter_thought_records as iter_thought_records,
    list_thought_records as list_thought_records,
)
from remit.routing.trail.thought_record import (
    DuplicateThoughtError as DuplicateThoughtError,
    InvalidThoughtError as InvalidThoughtError,
    ThoughtInput as ThoughtInput,
    ThoughtLineError as ThoughtLineError,
    ThoughtNotFoundError as ThoughtNotFoundError,
    ThoughtRecord as ThoughtRecord,
    ThoughtType as ThoughtType,
    TrailDamagedError as TrailDamagedError,
    TrailError as TrailError,
    hash_thought as hash_thought,
    read_input as read_input,
)
from remit.routing.trail.verification import (
    TrailProblem as TrailProblem,
    TrailReport as TrailReport,
    check_trail as check_trail,
    verify_trail as verify_trail,
)
