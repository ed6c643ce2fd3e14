"""The origin of a server: its command line or URL, for the ledger."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from remit.kernel.settings import McpServerSettings

_PLACEHOLDER = "[secret]"
_SECRET_NAME = re.compile(r"(?i)(?:key|token|secret|passw(?:or)?d|authorization)$")
_ASSIGNMENT = re.compile(r"(?P<name>-*[\w.-]+)(?:=|:\s*)")  # Such as --api-key=… and X-Key: ….
_MAX_CHARS = 2000


def mcp_origin(settings: McpServerSettings, redacted: Callable[[str], str]) -> str:
    """Return a server's command line or URL without secrets, for the ledger.

    Values of arguments and query fields whose names look secret become ``[secret]``. A text over
    2,000 characters is cut, and ends with its SHA-256. User name, password and fragment of a URL
    are removed. A command line is quoted as for a shell, with `` in CWD`` at its end if a folder is
    set.

    Args:
        settings: the server's settings.
        redacted: removes known secrets from a text.
    """
    if settings.url:
        parts = urlsplit(settings.url)
        query = [
            (name, _PLACEHOLDER if _SECRET_NAME.search(name) else value)
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
        ]
        host = parts.netloc.rpartition("@")[2]
        text = urlunsplit(parts._replace(netloc=host, query=urlencode(query), fragment=""))
    else:
        arguments = [settings.command]
        for argument in settings.args:
            assignment = _ASSIGNMENT.match(argument)
            if arguments[-1].startswith("-") and _SECRET_NAME.search(arguments[-1]):
                arguments.append(_PLACEHOLDER)
            elif assignment is not None and _SECRET_NAME.search(assignment["name"]):
                arguments.append(assignment[0] + _PLACEHOLDER)
            else:
                arguments.append(argument)
        text = shlex.join(arguments) + (f" in {settings.cwd}" if settings.cwd else "")
    text = redacted(text)
    if len(text) <= _MAX_CHARS:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return f"{text[:_MAX_CHARS]}… sha256:{digest}"
