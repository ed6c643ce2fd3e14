"""Values from the environment for a server, which no message may show."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from pydantic import SecretStr

from remit.agents.tools.definition import ToolError
from remit.kernel.secrets import redact_secrets

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_MIN_CHARS = 6  # Shorter values (a port, "true") occur in many other texts.


class McpSecrets:
    """The values of a server's ``env`` and ``headers``.

    :meth:`filled` reads the environment and remembers what it filled in; :meth:`redacted` removes
    these values from texts. Remembered values are never forgotten.

    Args:
        server: the server's name, for messages.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._known: set[str] = set()

    def filled(self, values: Mapping[str, SecretStr]) -> dict[str, str]:
        """Return values with each ``${VARIABLE}`` replaced from the environment.

        Results of at least 6 characters are remembered as secrets, for :meth:`redacted`. The words
        of a value are remembered, too.

        Args:
            values: the configured values, keyed by name.

        Raises:
            ToolError: a variable is not set.
        """
        filled = {name: self._filled(value.get_secret_value()) for name, value in values.items()}
        for value in filled.values():
            self._known.update(part for part in (value, *value.split()) if len(part) >= _MIN_CHARS)
        return filled

    def redacted(self, text: str) -> str:
        """Return a text in which remembered values, and texts that look like secrets, are
        ``[secret]``.

        Longer values are replaced first.

        Args:
            text: the text, which is not changed itself.
        """
        for value in sorted(self._known, key=len, reverse=True):
            text = text.replace(value, "[secret]")
        return redact_secrets(text)

    def _filled(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            if found[1] not in os.environ:
                raise ToolError(
                    f"The MCP server {self._server!r} needs the environment variable {found[1]}.",
                    next_step=f"Set {found[1]}, or leave it out of [mcp.{self._server}].",
                )
            return os.environ[found[1]]

        return _VARIABLE.sub(value, text)
