"""Archives: old entries outside the database, with their content, in files that can be checked."""

from remit.ledger.archive.archiving import ArchiveReport, archive, cut_at, finish
from remit.ledger.archive.checking import check_archive
from remit.ledger.archive.erasing import erase_archived, purge, retain_archived
from remit.ledger.archive.reading import Archive, joined, read_either

__all__ = [
    "Archive",
    "ArchiveReport",
    "archive",
    "check_archive",
    "cut_at",
    "erase_archived",
    "finish",
    "joined",
    "purge",
    "read_either",
    "retain_archived",
]
