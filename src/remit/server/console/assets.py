"""Scripts, which a browser keeps, under addresses that change with them; and the style, which every
page carries: a browser would paint nothing before a file of it had come."""

from __future__ import annotations

import functools
import hashlib
from importlib import resources
from typing import NamedTuple

from remit.views import POSITIONS
from remit.views.page import style_sheet

ASSETS = "/console/static/"

_STATIC = resources.files("remit.server.console") / "static"
_SCRIPTS = ("live.js", "check.js")


class Asset(NamedTuple):
    """A file as it is sent."""

    content_type: str
    body: bytes
    digest: str


@functools.cache
def assets() -> dict[str, Asset]:
    """All files, by name."""
    found = {name: _script((_STATIC / name).read_bytes()) for name in _SCRIPTS}
    shared = resources.files("remit.views") / "assets" / "verify.js"
    return found | {"verify.js": _script(shared.read_bytes())}


@functools.cache
def style() -> str:
    """The style sheet of every page; the policy of the console names it by its hash."""
    shared = style_sheet("page.css", "learning.css")
    return shared + (_STATIC / "console.css").read_text("utf-8") + POSITIONS


def address_of(name: str) -> str:
    """Where a file is found."""
    return f"{ASSETS}{name}?{assets()[name].digest}"


def _script(body: bytes) -> Asset:
    return Asset("text/javascript; charset=utf-8", body, hashlib.sha256(body).hexdigest()[:16])
