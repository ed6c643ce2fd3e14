"""Scripts and styles of the console.

Browsers cache scripts under URLs that change with the content. The style sheet is part of every
page, because a browser paints nothing before a separate style sheet has arrived.
"""

from __future__ import annotations

import functools
import hashlib
from importlib import resources

from remit.views.page import style_sheet

ASSETS = "/console/static/"

_STATIC = resources.files("remit.server.console") / "static"
_SCRIPTS = ("local.js", "live.js", "check.js")


@functools.cache
def scripts() -> dict[str, bytes]:
    """Return the scripts of the console as bytes, keyed by file name; read once."""
    found = {name: (_STATIC / name).read_bytes() for name in _SCRIPTS}
    shared = resources.files("remit.views") / "assets" / "verify.js"
    return found | {"verify.js": shared.read_bytes()}


@functools.cache
def style() -> str:
    """Return the style sheet of every page. Pages with a timeline also have ``POSITIONS``.

    The content security policy contains the hashes of both.
    """
    shared = style_sheet("page.css", "learning.css")
    return shared + (_STATIC / "console.css").read_text("utf-8")


def address_of(name: str) -> str:
    """Return the URL path of a script; the query changes with the content, for browser caches.

    Args:
        name: a file name of :func:`scripts`.

    Raises:
        KeyError: there is no such script.
    """
    return f"{ASSETS}{name}?{hashlib.sha256(scripts()[name]).hexdigest()[:16]}"
