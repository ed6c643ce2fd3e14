"""The earlier name of :mod:`remit.agents.tools`; it stays until 1.0."""

from typing import TYPE_CHECKING, Any

import remit.agents.tools as _tools

if TYPE_CHECKING:
    from remit.agents.tools import *
from remit.agents.tools import __all__ as __all__


def __getattr__(name: str) -> Any:
    # Names of MCP servers need an extra, so each name is imported when it is used.
    return getattr(_tools, name)
