"""Form fields, query parameters and redirects."""

from __future__ import annotations

import string
from urllib.parse import parse_qsl, quote, urlsplit

from remit.server.asgi import Answer, Headers, Receive, Scope, read_body
from remit.server.refusals import HttpError

PREFIX = "/console"

MAX_LOGIN_BYTES = 16 * 1024
"""The largest form, in bytes, of a visitor who is not signed in."""

_MAX_BYTES = 64 * 1024
_MAX_PATH_CHARS = 1_000  # A cookie stores the path during a sign-in.
_TIMEOUT_S = 10.0
_NOT_OWN = "This form was not sent from this console. Reload the page and try again."


async def read_form(scope: Scope, receive: Receive, most: int = _MAX_BYTES) -> dict[str, str]:
    """Read a request's form and return its fields; the last value if a name is repeated.

    A form of more than 50 fields cannot be read.

    Args:
        scope: the ASGI request.
        receive: ASGI's function.
        most: longest form, in bytes; 64 KiB by default.

    Raises:
        HttpError: 400, the form cannot be read; 413, longer than ``most`` bytes; 408, too slow;
            403, sent by a page of another site.
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
    """Return the fields of a query string; the last value if a name is repeated.

    Empty values are left out.

    Args:
        scope: ASGI's scope of the request.
    """
    return dict(parse_qsl(scope["query_string"].decode("latin-1")))


def not_own() -> HttpError:
    """Return (not raise) the 403 for a form that no page of this console sent."""
    return HttpError(403, "forbidden", _NOT_OWN)


def is_secure(scope: Scope) -> bool:
    """Return True if the browser used TLS, to this server or to a proxy.

    The header ``x-forwarded-proto`` is trusted.

    Args:
        scope: ASGI's scope of the request.
    """
    named = dict(scope["headers"])
    return scope.get("scheme") == "https" or named.get(b"x-forwarded-proto", b"") == b"https"


def own_path(text: str) -> str:
    """Return the page to show after a login; the start page unless ``text`` is a console path.

    A path of more than 1,000 characters gives the start page too. Characters outside printable
    ASCII are quoted.

    Args:
        text: a path with its query, as the browser sent it.
    """
    if text.startswith(f"{PREFIX}/") and len(text) <= _MAX_PATH_CHARS:
        return quote(text, safe=string.punctuation)
    return "/"


def see(place: str, *headers: tuple[bytes, bytes]) -> Answer:
    """Return a redirect (303) to a path.

    Args:
        place: path and query, in Latin-1.
        headers: further headers, such as a cookie.
    """
    return Answer(303, b"", b"text/plain", [(b"location", place.encode("latin-1")), *headers])


def _is_own(headers: Headers) -> bool:
    """Return True if the browser reports no other site as the sender of a form."""
    named = dict(headers)
    if (site := named.get(b"sec-fetch-site")) is not None:
        return site == b"same-origin"
    origin = named.get(b"origin", b"").decode("latin-1")
    if not origin:
        return True  # Old browsers send no origin; the token of the form protects them.
    try:
        from_host = urlsplit(origin).netloc.lower()
    except ValueError:
        return False
    return from_host == named.get(b"host", b"").decode("latin-1").lower()
