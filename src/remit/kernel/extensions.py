"""Parts of Remit that are distributions of their own, found through their entry points."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from remit.kernel.errors import InvalidInputError

INDEX = "remit-index"
INTEROP = "remit-interop"


class MissingDistributionError(InvalidInputError, ImportError):
    """A distribution of Remit is missing or incomplete.

    Args:
        needed: name of the distribution, which the next step installs.
        why: the message.

    Attributes:
        code: ``index_not_installed`` or ``interop_not_installed``.
    """

    def __init__(self, needed: str, why: str) -> None:
        super().__init__(why, next_step=f"pip install {needed}")
        self.code = f"{needed.removeprefix('remit-')}_not_installed"


def load_extension(needed: str, group: str, name: str) -> Any:
    """Import and return the object of a distribution's entry point.

    Only the named distribution counts: an entry point of another one would bring foreign code into
    a process that nobody installed it for. An error at the import of the module, other than
    ImportError, is raised unchanged.

    Args:
        needed: the distribution, :data:`INDEX` or :data:`INTEROP`.
        group: group of the entry point, such as ``remit.commands``.
        name: name of the entry point.

    Raises:
        MissingDistributionError: the distribution is not installed, does not have the entry point
            exactly once, or its module cannot be imported.
    """
    try:
        found = tuple(distribution(needed).entry_points.select(group=group, name=name))
    except PackageNotFoundError as error:
        why = f"{name} is in the distribution {needed}, which is not installed."
        raise MissingDistributionError(needed, why) from error
    if len(found) != 1:
        why = f"The installed {needed} does not have {name}: its version does not match Remit."
        raise MissingDistributionError(needed, why)
    try:
        return found[0].load()
    except ImportError as error:
        why = f"The installed {needed} cannot be imported: {error}."
        raise MissingDistributionError(needed, why) from error
