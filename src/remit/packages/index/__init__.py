"""Package indexes: directories or web servers that hold packages, verified through TUF.

Needs the extra ``index``; nothing imports this until it is used. A root uses indexes with
:class:`PackageIndex` and :func:`find_in_indexes`; :class:`IndexPublisher` makes
one. ``docs/package-index.md`` has the formats and the codes.
"""

from remit.packages.errors import PackageIndexError

try:
    import tuf  # noqa: F401 - so that a missing extra is reported by its name
    import urllib3  # noqa: F401
except ImportError as error:
    raise PackageIndexError(
        "index_not_installed",
        "Package indexes need the extra 'index', which is not installed.",
        next_step="pip install 'remit[index]'",
    ) from error

from remit.packages.index.client import (
    IndexState,
    PackageIndex,
    find_in_indexes,
    open_indexes,
    remove_index,
)
from remit.packages.index.listing import Listed
from remit.packages.index.publisher import IndexPublisher

__all__ = [
    "IndexPublisher",
    "IndexState",
    "Listed",
    "PackageIndex",
    "find_in_indexes",
    "open_indexes",
    "remove_index",
]
