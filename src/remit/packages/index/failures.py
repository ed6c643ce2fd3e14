"""What ``tuf`` refuses, as errors of Remit (TUF 5, "Detailed client workflow")."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tuf.api.exceptions import (
    BadVersionNumberError,
    DownloadError,
    DownloadLengthMismatchError,
    ExpiredMetadataError,
    LengthOrHashMismatchError,
    RepositoryError,
    UnsignedMetadataError,
)

from remit.packages.errors import PackageIndexError
from remit.packages.index.fetcher import IndexFetcher

__all__ = ["translate_errors"]

_ASK = "Ask who publishes it"
_KEPT = "what was known of it before stays"
_ROLLBACK = ("timestamp.json", "snapshot.json")


@contextlib.contextmanager
def translate_errors(name: str, fetcher: IndexFetcher) -> Iterator[None]:
    """Raises what ``tuf`` raises about the index ``name`` as :class:`PackageIndexError`."""
    try:
        yield
    except (DownloadError, RepositoryError) as error:
        code, problem, next_step = _describe(error, fetcher.file)
        raise PackageIndexError(
            code, f"The index {name} {problem}; {_KEPT}.", next_step=next_step
        ) from error
    except OSError as error:
        raise PackageIndexError(
            "index_damaged",
            f"Files of the index {name} cannot be read or written on this machine: {error}.",
            next_step="Check the free space, and the permissions of what is named.",
        ) from error


def _describe(error: Exception, file: str) -> tuple[str, str, str]:
    """Code, what happened, what to do; ``file`` was requested last."""
    match error:
        case DownloadLengthMismatchError():
            return (
                "index_mixed",
                f"sent more bytes of {file} than were signed or are allowed",
                "Try again; if it stays so, do not trust the way to the server. Limits are in "
                "the settings.",
            )
        case DownloadError():
            return (
                "index_unreachable",
                f"cannot be fetched: {file}: {error}",
                "Check its address, the network and the server, and try again.",
            )
        case ExpiredMetadataError():
            return (
                "index_expired",
                f"has not been renewed in time or is held back from you ({error})",
                f"{_ASK} to run `remit package index renew`; check this machine's clock. If the "
                "publisher did renew it, somebody in between shows you an old state.",
            )
        case LengthOrHashMismatchError():
            return (
                "index_mixed",
                f"sent {file} of another state than the one that is signed",
                "Try again in a minute; if it stays so, the server's files were changed.",
            )
        case BadVersionNumberError() if file.endswith(_ROLLBACK):
            return (
                "index_rolled_back",
                f"is older than when it was last seen ({error})",
                f"{_ASK}: a backup may have been put back. If not, somebody shows you an old "
                "state.",
            )
        case BadVersionNumberError():
            return (
                "index_mixed",
                f"sent {file} in a version that does not fit the rest ({error})",
                "Try again in a minute; if it stays so, the server's files were changed.",
            )
        case UnsignedMetadataError():
            return (
                "index_bad_signature",
                f"sent {file} without enough good signatures ({error})",
                "Do not use it before you know why: the file was changed, or the keys are others "
                "than those you trust.",
            )
        case _:
            return (
                "index_bad_signature",
                f"sent {file}, which is no metadata that could be signed",
                "Check its address: it may be a page of another server.",
            )
