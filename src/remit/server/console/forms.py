"""What a browser sends, and where it is sent next."""

from __future__ import annotations

import string
from urllib.parse import parse_qsl, quote, urlsplit

from remit.server.refusals import HttpError
from remit.server.replies import Answer, Headers, Receive, Scope, read_body

PREFIX = "/console"

MOST_LOGIN_BYTES = 16 * 1024
"""Of a form from somebody who has shown no key."""

_MOST_BYTES = 64 * 1024
_MOST_PATH_CHARS = 1_000  # a cookie has to hold it
_TIMEOUT_S = 10.0
_NOT_OWN = "This form is not of this console. Open the page again."


async def read_form(scope: Scope, receive: Receive, most: int = _MOST_BYTES) -> dict[str, str]:
    """The fields of a form that a page of this console sent.

    Raises:
        HttpError: it cannot be read, is too long, or is of another site.
    """
    length = dict(scope["headers"]).get(b"content-length")
    body = await read_body(receive, length, most, _TIMEOUT_S, None)
    try:
        form = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise HttpError(400, "invalid_input", "The form cannot be read.") from error
    if not _is_own(scope["headers"]):
        raise not_own()
    return form


def read_query(scope: Scope) -> dict[str, str]:
    """The fields of a URL's query, the last where one is given twice."""
    return dict(parse_qsl(scope["query_string"].decode("latin-1")))


def not_own() -> HttpError:
    """A form that no page of this console made."""
    return HttpError(403, "forbidden", _NOT_OWN)


def is_secure(scope: Scope) -> bool:
    """Whether the browser came over TLS, here or at a proxy."""
    named = dict(scope["headers"])
    return scope.get("scheme") == "https" or named.get(b"x-forwarded-proto", b"") == b"https"


def own_path(text: str) -> str:
    """Where to go after a login: a page of the console, whatever a link says."""
    if text.startswith(f"{PREFIX}/") and len(text) <= _MOST_PATH_CHARS:
        return quote(text, safe=string.punctuation)
    return "/"


def see(place: str, *headers: tuple[bytes, bytes]) -> Answer:
    """Another page, to be asked for."""
    return Answer(303, b"", b"text/plain", [(b"location", place.encode("latin-1")), *headers])


def _is_own(headers: Headers) -> bool:
    """Whether a form was sent from a page of this server, as far as the browser says."""
    named = dict(headers)
    if (site := named.get(b"sec-fetch-site")) is not None:
        return site == b"same-origin"
    origin = named.get(b"origin", b"").decode("latin-1")
    if not origin:
        return True  # no browser of today: the form's token counts
    try:
        from_host = urlsplit(origin).netloc.lower()
    except ValueError:
        return False
    return from_host == named.get(b"host", b"").decode("latin-1").lower()


__all__ = [
    "MOST_LOGIN_BYTES", "PREFIX", "is_secure", "not_own", "own_path", "read_form", "read_query",
    "see",
]  # fmt: skip
