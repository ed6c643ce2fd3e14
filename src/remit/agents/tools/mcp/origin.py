"""Which server stands behind a name: its command line or URL, for the record."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from remit.kernel.settings import McpServerSettings

_HIDDEN = "[secret]"
_NAME = re.compile(r"(?i)(?:key|token|secret|passw(?:or)?d|authorization)$")
_GIVEN = re.compile(r"(?P<name>-*[\w.-]+)(?:=|:\s*)")  # --api-key=…, X-Key: …
_LONGEST = 2000


def mcp_origin(settings: McpServerSettings, redacted: Callable[[str], str]) -> str:
    """Which server it is: its command line or URL, with nothing secret in it.

    Args:
        settings: how it is reached.
        redacted: takes out the secrets that are known.
    """
    if settings.url:
        parts = urlsplit(settings.url)
        query = [
            (name, _HIDDEN if _NAME.search(name) else value)
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
        ]
        host = parts.netloc.rpartition("@")[2]
        text = urlunsplit(parts._replace(netloc=host, query=urlencode(query), fragment=""))
    else:
        words = [settings.command]
        for word in settings.args:
            given = _GIVEN.match(word)
            if words[-1].startswith("-") and _NAME.search(words[-1]):
                words.append(_HIDDEN)
            elif given is not None and _NAME.search(given["name"]):
                words.append(given[0] + _HIDDEN)
            else:
                words.append(word)
        text = shlex.join(words) + (f" in {settings.cwd}" if settings.cwd else "")
    text = redacted(text)
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return f"{text[:_LONGEST]}… sha256:{digest}"
