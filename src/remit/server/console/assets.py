"""Style and scripts: files that a browser keeps, under an address that changes with them."""

from __future__ import annotations

import functools
import hashlib
from importlib import resources
from typing import NamedTuple

from remit.views.page import style_sheet
from remit.views.timeline import POSITIONS

ASSETS = "/console/static/"

_SCRIPTS = ("live.js", "check.js")


class Asset(NamedTuple):
    """A file as it is sent."""

    content_type: str
    body: bytes
    digest: str


@functools.cache
def assets() -> dict[str, Asset]:
    """All files, by name."""
    folder = resources.files("remit.server.console") / "static"
    style = style_sheet("page.css", "learning.css") + (folder / "console.css").read_text("utf-8")
    found = {"console.css": _asset("text/css", (style + POSITIONS).encode())}
    for name in _SCRIPTS:
        found[name] = _asset("text/javascript", (folder / name).read_bytes())
    shared = resources.files("remit.views") / "assets" / "verify.js"
    found["verify.js"] = _asset("text/javascript", shared.read_bytes())
    return found


def address_of(name: str) -> str:
    """Where a file is found."""
    return f"{ASSETS}{name}?{assets()[name].digest}"


def _asset(kind: str, body: bytes) -> Asset:
    return Asset(f"{kind}; charset=utf-8", body, hashlib.sha256(body).hexdigest()[:16])
