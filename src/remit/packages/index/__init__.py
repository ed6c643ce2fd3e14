"""Package indexes: directories or web servers that hold packages, verified through TUF.

A root uses them with :class:`PackageIndex` and :func:`find_in_indexes`; whoever publishes one,
with :class:`IndexPublisher`. ``docs/package-index.md`` has the formats and the codes.
"""

from remit.packages.index.client import Fetched, PackageIndex
from remit.packages.index.finding import (
    find_in_indexes,
    index_directory,
    open_indexes,
    remove_index,
)
from remit.packages.index.limits import IndexLimits, Lifetimes
from remit.packages.index.publisher import IndexPublisher
from remit.packages.index.root_metadata import RootMetadata
from remit.packages.index.state import KnownState
from remit.packages.index.targets import Listed

__all__ = [
    "Fetched",
    "IndexLimits",
    "IndexPublisher",
    "KnownState",
    "Lifetimes",
    "Listed",
    "PackageIndex",
    "RootMetadata",
    "find_in_indexes",
    "index_directory",
    "open_indexes",
    "remove_index",
]
