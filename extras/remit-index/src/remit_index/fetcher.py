"""Downloading an index's files: the fetcher of ``tuf``, for directories too, and within limits.

What is downloaded is not trusted here: ``tuf`` verifies each file afterwards.
"""

from __future__ import annotations

import ipaddress
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import url2pathname

import urllib3
from tuf.api.exceptions import DownloadError, DownloadHTTPError, SlowRetrievalError
from tuf.ngclient.urllib3_fetcher import Urllib3Fetcher
from typing_extensions import override

from remit.kernel.errors import InvalidInputError
from remit.kernel.settings import PackageIndexSettings

_CHUNK = 1 << 16
_MOVED = (301, 302, 303, 307, 308)
_NOT_FOUND = 404


class IndexFetcher(Urllib3Fetcher):
    """Reads files of one index.

    Attributes:
        file: name of the file that was requested last, for error messages.
    """

    def __init__(self, location: str, settings: PackageIndexSettings, insecure_http: bool) -> None:
        super().__init__(app_user_agent="remit")
        self.file = ""
        self._location = location
        self._settings = settings
        self._insecure_http = insecure_http

    @override
    def download_bytes(self, url: str, max_length: int) -> bytes:
        # The limit holds even where the index states a greater length.
        return super().download_bytes(url, min(max_length, self._settings.metadata_bytes))

    @override
    def _fetch(self, url: str) -> Iterator[bytes]:
        self.file = url.rpartition("/")[2]
        return self._download(url) if "://" in self._location else self._read(url)

    def _read(self, path: str) -> Iterator[bytes]:
        try:
            # Not blocking: a pipe in place of the file must not hold us up.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise DownloadError("it is no plain file")
                while chunk := file.read(_CHUNK):
                    yield chunk
        except FileNotFoundError as error:
            # An index that is gone is not one without news.
            if not Path(self._location, "metadata").is_dir():
                raise DownloadError(f"there is no directory {self._location}/metadata") from error
            raise DownloadHTTPError("it is not there", _NOT_FOUND) from error
        except OSError as error:
            raise DownloadError(str(error.strerror or error)) from error

    def _download(self, url: str) -> Iterator[bytes]:
        limit = self._settings.download_s
        until = time.monotonic() + limit
        # A '+' in a version would be a space to some servers.
        url = self._location + quote(url[len(self._location) :], safe="/%")
        try:
            with self._follow(url) as response:
                while chunk := response.read1(_CHUNK, decode_content=False):
                    if time.monotonic() > until:
                        raise SlowRetrievalError(f"it had not come after {limit:g} s")
                    yield chunk
        except urllib3.exceptions.NewConnectionError as error:
            raise DownloadError(str(error).rpartition("] ")[2]) from error
        except urllib3.exceptions.TimeoutError as error:
            raise SlowRetrievalError(
                f"the server was silent for {self._settings.timeout_s:g} s"
            ) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise DownloadError(f"the connection broke off ({error})") from error

    def _follow(self, url: str) -> urllib3.BaseHTTPResponse:
        """The answer, after redirects that stay as secure as the index's own address."""
        for _ in range(self._settings.redirects + 1):
            response = self._proxy_env.request(
                "GET",
                url,
                headers={"Accept-Encoding": "identity"},
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(self._settings.timeout_s),
            )
            if response.status == 200:
                return response
            response.close()
            target = response.headers.get("Location")
            if response.status not in _MOVED or target is None:
                raise DownloadHTTPError(
                    f"the server answered with status {response.status}", response.status
                )
            scheme = urlsplit(url).scheme
            try:
                url = urljoin(url, target)
            except ValueError as error:
                raise DownloadError("the server's redirect is no URL") from error
            if problem := _address_problem(url, self._insecure_http):
                raise DownloadError(f"the server's redirect {problem}")
            if urlsplit(url).scheme != scheme:
                raise DownloadError("the server's redirect leads to another scheme")
        raise DownloadError(f"it was redirected more than {self._settings.redirects} times")


def parse_location(text: str, *, insecure_http: bool = False) -> str:
    """The absolute path of a directory, or an address without a slash at its end.

    Args:
        text: a directory, or a URL with ``https``, ``http`` or ``file``.
        insecure_http: whether unencrypted http may lead beyond this machine.

    Raises:
        InvalidInputError: it is neither, holds a user or a password, or is unencrypted http
            beyond this machine without ``insecure_http``.
    """
    if text.startswith("file:///"):
        text = url2pathname(text.removeprefix("file://"))
    if "://" not in text:
        return str(Path(text).absolute())
    problem = _address_problem(text, insecure_http)
    if not problem and ("?" in text or "#" in text):
        problem = "has a part after '?' or '#'"
    if problem:
        raise InvalidInputError(
            f"The index's address {problem}.",
            next_step="Write it as https://host/path, without a user. `remit package index add "
            "--insecure-http` allows http: what is installed is verified all the same, but "
            "everybody in between sees what you fetch and can keep it from you.",
        )
    return text.rstrip("/")


def _address_problem(url: str, insecure_http: bool) -> str:
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
        _ = parts.port
    except ValueError:
        return "is no URL"
    if parts.scheme not in ("https", "http") or not host:
        return "is neither a directory nor a URL with https"
    if user is not None:
        return "holds a user or a password"
    if parts.scheme == "http" and not insecure_http and not _is_loopback(host):
        return "is unencrypted http beyond this machine"
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
