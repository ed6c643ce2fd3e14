"""Additions to a prompt: bullets with ids, merged by code and not by a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import InvalidInputError

__all__ = ["additions_of", "with_additions"]

_HEAD = "Learned from earlier work:"
_BULLET = re.compile(r"^- \[([0-9a-f]{8})\] (.+)$")
_BLOCK = re.compile(rf"\n*^{_HEAD}\n(?:- \[[0-9a-f]{{8}}\] .+\n?)+", re.MULTILINE)
_SYSTEM = re.compile(r"^\[system\][ \t\r]*$", re.MULTILINE)
_SECTION = re.compile(r"^\[(?:system|user|assistant|history)\][ \t\r]*$", re.MULTILINE)
_TEMPLATE = re.compile(r"\{[{%#]|[%#}]\}")
_LONGEST = 500  # characters of one bullet


def additions_of(pack: str) -> dict[str, str]:
    """Return the learned bullets of a prompt pack's text, keyed by id.

    The dictionary follows the text, and is empty without bullets. An id has 8 hex digits. Lines of
    the block that are no bullets are skipped.
    """
    found = _BLOCK.search(pack)
    lines = found[0].splitlines() if found else ()
    return {bullet[1]: bullet[2] for line in lines if (bullet := _BULLET.match(line))}


def with_additions(pack: str, added: Iterable[str], dropped: Sequence[str] = ()) -> str:
    """Return a prompt pack with further bullets at the end of its first system section.

    The id of a bullet is the first 8 hex digits of the SHA-256 of its text, so a text is never
    added twice. A pack without a system section gets one.

    Args:
        pack: the pack's text, with or without learned bullets.
        added: texts to add, one line each.
        dropped: ids of bullets to remove.

    Raises:
        InvalidInputError: a text is not one line of plain text of at most 500 characters, or an id
            is unknown.
    """
    bullets = additions_of(pack)
    for bullet_id in dropped:
        if bullet_id not in bullets:
            raise InvalidInputError(f"The prompt has no addition {bullet_id}.")
        del bullets[bullet_id]
    for given in added:
        text = given.strip()
        if not text.isprintable() or not 0 < len(text) <= _LONGEST or _TEMPLATE.search(text):
            raise InvalidInputError(
                f"An addition must be one line of plain text of at most {_LONGEST} characters, "
                "without template syntax.",
            )
        bullets.setdefault(sha256_hex(text.encode())[:8], text)
    bare = _BLOCK.sub("\n", pack, count=1)
    if not bullets:
        return bare
    lines = (f"- [{bullet_id}] {text}" for bullet_id, text in bullets.items())
    block = "\n".join([_HEAD, *lines])
    system = _SYSTEM.search(bare)
    if system is None:
        first = "" if _SECTION.match(bare) else "[user]\n"
        return f"[system]\n{block}\n{first}{bare}"
    after = _SECTION.search(bare, system.end())
    end = after.start() if after else len(bare)
    return f"{bare[:end].rstrip()}\n\n{block}\n{bare[end:]}"
