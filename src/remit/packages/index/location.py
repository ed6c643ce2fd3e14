"""Where an index is: a directory of this machine, or the address of a web server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from remit.kernel.errors import InvalidInputError

__all__ = ["Location", "is_loopback"]


@dataclass(frozen=True, slots=True)
class Location:
    """A place that was looked at and may be used.

    Attributes:
        text: an absolute path, or an address without a slash at its end.
        is_url: which of both.
        insecure_http: whether unencrypted http may lead beyond this machine.
    """

    text: str
    is_url: bool
    insecure_http: bool = False

    @classmethod
    def parse(cls, text: str, *, insecure_http: bool = False) -> Location:
        """The place that a user wrote.

        Args:
            text: a directory, or a URL with ``https``, ``http`` or ``file``.

        Raises:
            InvalidInputError: it is neither, holds a user or a password, or is unencrypted http
                beyond this machine without ``insecure_http``.
        """
        if "://" not in text:
            return cls(str(Path(text).absolute()), False, insecure_http)
        if text.startswith("file:///"):
            path = url2pathname(text.removeprefix("file://"))
            return cls(str(Path(path).absolute()), False, insecure_http)
        problem = _problem(text, insecure_http)
        if problem is None and ("?" in text or "#" in text):
            problem = "has a part after '?' or '#'", "Give the address of the index's folder alone."
        if problem:
            what, next_step = problem
            raise InvalidInputError(f"The index's address {what}.", next_step=next_step)
        return cls(text.rstrip("/"), True, insecure_http)

    @property
    def metadata(self) -> str:
        """Where the signed lists are."""
        return f"{self.text}/metadata/"

    @property
    def targets(self) -> str:
        """Where the packages are."""
        return f"{self.text}/targets/"

    def redirect_problem(self, before: str, after: str) -> str:
        """Why an answer of the server may not lead from one address to the other; else empty."""
        problem = _problem(after, self.insecure_http)
        if problem is None and urlsplit(before).scheme != urlsplit(after).scheme:
            return "leads to another scheme"
        return problem[0] if problem else ""


def _problem(url: str, insecure_http: bool) -> tuple[str, str] | None:
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
        _ = parts.port
    except ValueError:
        return "is no URL", "Write it as https://host/path."
    if parts.scheme not in ("https", "http") or not host:
        return "is neither a directory nor a URL with https", "Write it as https://host/path."
    if user is not None:
        return "holds a user or a password", "Remit keeps none; let the server ask for none."
    if parts.scheme == "http" and not insecure_http and not is_loopback(host):
        return (
            "is unencrypted http beyond this machine",
            "Use https. --insecure-http allows it: what is installed is verified all the same, but "
            "everybody in between sees what you fetch and can keep it from you.",
        )
    return None


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
