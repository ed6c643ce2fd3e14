"""A root: the directory that holds one installation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from remit.kernel.errors import RemitError

__all__ = ["Root", "find_root"]

# Earlier names, for programs that catch them; they end with version 1.0.
RootError = RemitError

_FIRST_CONFIG = """\
# Settings of this root. A setting that is not given here has its shipped default;
# `remit config show` lists every setting with its meaning and source.

# [model]
# default = "auto"          # or "local", "anthropic", "openai", a model name, provider/model
"""


@dataclass(frozen=True, slots=True)
class Root:
    """The paths of one root; immutable. Making the object reads and makes nothing.

    :meth:`create` makes the root's folders. :meth:`require` refuses a directory that is no root.

    Attributes:
        path: directory of the root.
    """

    path: Path

    @property
    def config(self) -> Path:
        """Path of the settings file ``remit.toml``, which may not exist."""
        return self.path / "remit.toml"

    @property
    def keys(self) -> Path:
        """The folder of the private keys in the tier ``hot``; no agent reads it."""
        return self.tier("hot") / "keys"

    @property
    def marks(self) -> Path:
        """The folder of the results of checks, from which later checks continue.

        The folder may not exist. Its loss costs time only.
        """
        return self.path / "marks"

    def tier(self, name: str) -> Path:
        """Return the path of a tier's folder, which may not exist.

        Args:
            name: ``hot``, ``ho2`` or ``ho1``; another name is not refused. The folder's name is in
                upper case.
        """
        return self.path / name.upper()

    def exists(self) -> bool:
        """Return True if the directory is a root: it has a ``remit.toml``."""
        return self.config.is_file()

    def require(self) -> Self:
        """Return this root if it exists.

        A directory is a root if it has a ``remit.toml``; its content is not checked.

        Raises:
            RemitError: the directory is not a root.
        """
        if not self.exists():
            raise RemitError(
                f"There is no root at {self.path}.",
                next_step="Run `remit init`, or choose another root: `remit COMMAND --root DIR`.",
            )
        return self

    def create(self) -> list[Path]:
        """Make missing folders and ``remit.toml``; return the files made. Existing files stay.

        The folders are the root itself (mode 0700 if it is new), with missing folders above it, and
        those of the three tiers, which packages fill later. A new ``remit.toml`` (mode 0600) holds
        only comments.

        Returns:
            The path of ``remit.toml`` if it was made, else an empty list.

        Raises:
            RemitError: the directory cannot be written.
        """
        made: list[Path] = []
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for tier in ("hot", "ho2", "ho1"):
                self.tier(tier).mkdir(exist_ok=True)
            if not self.config.exists():
                self.config.touch(mode=0o600)  # Operators write keys into this file.
                self.config.write_text(_FIRST_CONFIG, "utf-8")
                made.append(self.config)
        except OSError as error:
            raise RemitError(
                f"The root {self.path} cannot be created: {error.strerror or error}.",
                next_step="Choose another directory, or correct its permissions.",
            ) from error
        return made


def find_root(given: Path | None = None) -> Root:
    """Return the root of a command, which need not exist; nothing is made.

    The first of these counts: ``given``; ``REMIT_ROOT``, unless empty; the nearest ``.remit``
    directory from the working directory upwards; ``.remit`` in the working directory.

    Args:
        given: the root of a flag; ``None`` without one.
    """
    if given is not None:
        return Root(given)
    if named := os.environ.get("REMIT_ROOT"):
        return Root(Path(named))
    here = Path.cwd().resolve()
    for directory in (here, *here.parents):
        if (directory / ".remit").is_dir():
            return Root(directory / ".remit")
    return Root(here / ".remit")
