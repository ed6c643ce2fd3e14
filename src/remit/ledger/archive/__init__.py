"""Archives: old entries in files outside the database, with their content.

The package copies entries to a directory, removes their rows, and reads, checks and erases the
copy. The package does not change entries: an ``ARCHIVED`` entry records each range, and proofs of
archived entries stay valid.

Start reading in ``run`` (:func:`archive`, :func:`finish`). ``files`` defines the format.
"""

from remit.ledger.archive.check import check_archive
from remit.ledger.archive.erasure import erase_archived, purge, retain_archived
from remit.ledger.archive.files import interrupted_copies
from remit.ledger.archive.reader import Archive, joined, read_either
from remit.ledger.archive.removal import Guard
from remit.ledger.archive.run import ArchiveReport, archive, cut_at, finish

__all__ = [
    "Archive",
    "ArchiveReport",
    "Guard",
    "archive",
    "check_archive",
    "cut_at",
    "erase_archived",
    "finish",
    "interrupted_copies",
    "joined",
    "purge",
    "read_either",
    "retain_archived",
]
