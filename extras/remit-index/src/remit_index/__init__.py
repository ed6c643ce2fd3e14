"""Package indexes: directories or web servers that hold packages, verified through TUF.

A root uses indexes with :class:`PackageIndex` and :func:`find_in_indexes`;
:class:`IndexPublisher` makes one. ``docs/package-index.md`` has the formats and the codes.
"""

from remit_index.client import (
    IndexState,
    PackageIndex,
    find_in_indexes,
    open_indexes,
    remove_index,
)
from remit_index.errors import PackageIndexError
from remit_index.listing import Listed
from remit_index.publisher import IndexPublisher

__all__ = [
    "IndexPublisher",
    "IndexState",
    "Listed",
    "PackageIndex",
    "PackageIndexError",
    "find_in_indexes",
    "open_indexes",
    "remove_index",
]
