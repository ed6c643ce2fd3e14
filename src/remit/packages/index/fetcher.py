"""Getting an index's files, from a directory or over http, within limits.

What comes is not trusted here: ``tuf`` verifies each file after it came.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from abc import abstractmethod
from collections.abc import Iterator
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from tuf.api.exceptions import DownloadError, DownloadHTTPError, SlowRetrievalError
from tuf.ngclient.fetcher import FetcherInterface
from urllib3.util import make_headers, parse_url

from remit.packages.index.limits import IndexLimits
from remit.packages.index.location import Location, is_loopback

__all__ = ["IndexFetcher", "fetcher_for"]

_CHUNK = 1 << 16  # bytes in hand at once; no result depends on it
_MOVED = (301, 302, 303, 307, 308)
_NOT_FOUND = 404


class IndexFetcher(FetcherInterface):
    """What both ways share.

    Attributes:
        last: name of the file that was asked for last, for what is said of a failure.
    """

    def __init__(self, location: Location, limits: IndexLimits) -> None:
        self._location = location
        self._limits = limits
        self.last = ""

    def download_bytes(self, url: str, max_length: int) -> bytes:
        """A metadata file; the limit holds even where the index states a greater length."""
        return super().download_bytes(url, min(max_length, self._limits.metadata_bytes))

    def _fetch(self, url: str) -> Iterator[bytes]:
        self.last = url.rpartition("/")[2]
        return self._chunks(url)

    @abstractmethod
    def _chunks(self, url: str) -> Iterator[bytes]:
        """The file's bytes, piece by piece."""


def fetcher_for(location: Location, limits: IndexLimits) -> IndexFetcher:
    """The one that fits the location."""
    kind = _HttpFetcher if location.is_url else _DirectoryFetcher
    return kind(location, limits)


class _DirectoryFetcher(IndexFetcher):
    def _chunks(self, url: str) -> Iterator[bytes]:
        try:
            # Not blocking: a pipe in place of the file must not hold us up.
            handle = os.open(url, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise DownloadError("it is no plain file")
                while chunk := file.read(_CHUNK):
                    yield chunk
        except FileNotFoundError as error:
            # Nothing is asked of a server here: an index that is gone is not one without news.
            if not os.path.isdir(self._location.metadata):
                raise DownloadError(f"there is no directory {self._location.metadata}") from error
            raise DownloadHTTPError("it is not there", _NOT_FOUND) from error
        except OSError as error:
            raise DownloadError(str(error.strerror or error)) from error


class _HttpFetcher(IndexFetcher):
    def _chunks(self, url: str) -> Iterator[bytes]:
        until = time.monotonic() + self._limits.download_s
        # A '+' in a version would be a space to some servers.
        url = self._location.text + quote(url[len(self._location.text) :], safe="/%")
        try:
            with contextlib.ExitStack() as opened:
                response = self._follow(opened, url)
                while chunk := response.read1(_CHUNK, decode_content=False):
                    if time.monotonic() > until:
                        raise SlowRetrievalError(
                            f"it had not come after {self._limits.download_s:g} s"
                        )
                    yield chunk
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if _silent(error):
                raise SlowRetrievalError(
                    f"the server was silent for {self._limits.timeout_s:g} s"
                ) from error
            raise DownloadError(_reason(error)) from error

    def _follow(self, opened: contextlib.ExitStack, url: str) -> urllib3.BaseHTTPResponse:
        for _ in range(self._limits.redirects + 1):
            response = _pool(opened, url).request(
                "GET",
                url,
                headers={"Accept-Encoding": "identity", "User-Agent": "remit"},
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(self._limits.timeout_s),
            )
            opened.callback(response.close)
            if response.status == 200:
                return response
            target = response.headers.get("Location")
            if response.status not in _MOVED or target is None:
                raise DownloadHTTPError(
                    f"the server answered with status {response.status}", response.status
                )
            before = url
            try:
                url = urljoin(url, target)
            except ValueError as error:
                raise DownloadError("the server's redirect is no URL") from error
            if problem := self._location.redirect_problem(before, url):
                raise DownloadError(f"the server's redirect {problem}")
        raise DownloadError(f"it was redirected more than {self._limits.redirects} times")


def _pool(opened: contextlib.ExitStack, url: str) -> urllib3.PoolManager:
    """Connections to one server, through the proxy that the environment names for it."""
    parts = urlsplit(url)
    proxy = None
    if not (is_loopback(parts.hostname or "") or proxy_bypass(parts.netloc)):
        found = getproxies()
        proxy = found.get(parts.scheme) or found.get("all")
    if proxy is None:
        return opened.enter_context(urllib3.PoolManager())
    auth = parse_url(proxy).auth
    headers = make_headers(proxy_basic_auth=auth) if auth else None
    return opened.enter_context(urllib3.ProxyManager(proxy, proxy_headers=headers))


def _silent(error: Exception) -> bool:
    # urllib3 counts a refused connection among those that took too long.
    return isinstance(error, urllib3.exceptions.TimeoutError) and not isinstance(
        error, urllib3.exceptions.NewConnectionError
    )


def _reason(error: Exception) -> str:
    """What failed, without the objects that urllib3 names; no address with a password is in it."""
    if isinstance(error, urllib3.exceptions.ProxyError):
        return "the proxy that the environment names cannot be reached"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return str(error).rpartition(": ")[2].rpartition("] ")[2]
    if isinstance(error, urllib3.exceptions.SSLError):
        return f"TLS failed: {error}"
    return f"the connection broke off ({type(error).__name__})"
