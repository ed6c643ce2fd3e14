"""Archives: old entries outside the database, with their content, in files that can be checked."""

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
