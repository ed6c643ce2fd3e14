"""How an index fails: one code for each way, and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuf.api.exceptions import (
    BadVersionNumberError,
    DownloadError,
    DownloadLengthMismatchError,
    ExpiredMetadataError,
    LengthOrHashMismatchError,
    RepositoryError,
    UnsignedMetadataError,
)

from remit.packages import PackageError

if TYPE_CHECKING:
    from remit_index.fetcher import IndexFetcher

_NEXT_STEPS = {
    "index_bad_signature": "Do not use it before you know why: the file was changed, it is a page "
    "of another server, or the keys are others than those you trust. Get root metadata from who "
    "publishes the index, through a channel that you trust.",
    "index_damaged": "Check free space and permissions. `remit package index refresh` repairs what "
    "a root keeps of an index; if that does not help, `remit package index remove` and `add` it "
    "again, as the copy of an index holds nothing else. Who publishes puts a good copy back.",
    "index_exists": "Use another name, directory or version.",
    "index_expired": "Ask who publishes it to run `remit package index renew`; check this "
    "machine's clock. If the publisher did renew it, somebody in between shows you an old state.",
    "index_key": "Put the key there that `remit package index init` or `rotate` made, with mode "
    "0600.",
    "index_mixed": "Try again in a minute; if it stays so, files were changed on the server or on "
    "the way: report it to who publishes the index.",
    "index_not_added": "`remit package index list` shows those there are, `add` adds one; `init` "
    "makes one to publish.",
    "index_rolled_back": "Ask who publishes it: a backup may have been put back. If not, somebody "
    "shows you an old state.",
    "index_too_large": "Raise packages.compressed_bytes if you trust the index.",
    "index_unreachable": "Check its address, the network and the server, and try again.",
    "package_in_several": "Name the index that you mean.",
    "package_not_in_index": "`remit package index search` shows what the indexes have.",
}

_FAILURES: tuple[tuple[type[Exception], str, str], ...] = (  # the first that fits
    (DownloadLengthMismatchError, "index_mixed", "sent more bytes of {file} than are allowed"),
    (DownloadError, "index_unreachable", "cannot be fetched: {file}: {error}"),
    (ExpiredMetadataError, "index_expired", "was not renewed, or is held back from you ({error})"),
    (LengthOrHashMismatchError, "index_mixed", "sent {file}, which is not the one that is signed"),
    (BadVersionNumberError, "index_mixed", "sent {file} in a version that does not fit ({error})"),
    (UnsignedMetadataError, "index_bad_signature", "sent {file} without good signatures ({error})"),
    (RepositoryError, "index_bad_signature", "sent {file}, which is no signed metadata"),
)
_ROLLBACK = "index_rolled_back", "is older than when it was last seen ({error})"


class PackageIndexError(PackageError):
    """A package index that cannot be used, or has changed; ``docs/package-index.md`` has the codes.

    Nothing that an index gave is used unless all of it was verified: the last good state stays.
    """


def index_error(code: str, problem: str) -> PackageIndexError:
    """What to raise for one of the codes, with what to do about it."""
    return PackageIndexError(code, problem, next_step=_NEXT_STEPS[code])


@contextlib.contextmanager
def translate_errors(name: str, fetcher: IndexFetcher | None = None) -> Iterator[None]:
    """Raises what ``tuf`` and the disk refuse of the index ``name`` as :class:`PackageIndexError`.

    Args:
        fetcher: knows which file was requested last.
    """
    try:
        yield
    except (DownloadError, RepositoryError) as error:
        file = fetcher.file if fetcher is not None else ""
        code, problem = next(row[1:] for row in _FAILURES if isinstance(error, row[0]))
        if isinstance(error, BadVersionNumberError) and file.endswith(
            ("timestamp.json", "snapshot.json")
        ):
            code, problem = _ROLLBACK
        problem = problem.format(file=file, error=error)
        raise index_error(
            code, f"The index {name} {problem}; what was known of it before stays."
        ) from error
    except OSError as error:
        raise index_error(
            "index_damaged",
            f"Files of the index {name} cannot be read or written on this machine: {error}.",
        ) from error
