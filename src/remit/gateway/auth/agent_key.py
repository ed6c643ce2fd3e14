"""The secret that signs agent tokens: a file of the root, never in the database."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path

from remit.gateway.auth.errors import AgentKeyError
from remit.kernel.root import Root

__all__ = ["agent_secret"]

_FILE = "agent.key"
_BYTES = 32
_HEX = re.compile(r"[0-9a-f]{64}\n?", re.ASCII)


def agent_secret(root: Root) -> bytes:
    """The 32 secret bytes of a root's ``HOT/keys/agent.key``; made when there are none.

    The file holds them in hex, mode 0600. Of several processes that make it at the same time one
    wins, and all get the same secret. Deleting it ends every agent token.

    Raises:
        AgentKeyError: the file is readable by others, damaged, or cannot be read or made.
    """
    path = root.keys / _FILE
    try:
        if not path.exists():
            _create(path)
        return _load(path)
    except OSError as error:
        raise AgentKeyError(
            f"The agent key {path} cannot be read or made: {error.strerror or error}.",
            next_step="Check the permissions of that directory.",
        ) from error


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Written whole under a name of its own and then linked, which fails where there is a file:
    # no reader sees half a secret, and none is replaced.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_hex(_BYTES)}\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _load(path: Path) -> bytes:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise AgentKeyError(
                f"The agent key {path} can be read by others.", next_step=f"chmod 600 {path}"
            )
        text = file.read().decode("ascii", "replace")
    if not _HEX.fullmatch(text):
        raise AgentKeyError(
            f"The agent key {path} is damaged: it is not 64 hex digits.",
            next_step="Restore it, or delete it, which ends every agent token.",
        )
    return bytes.fromhex(text.strip())
