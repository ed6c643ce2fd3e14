"""Paths of package files: which are valid, and which a package may own."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from remit.kernel.errors import excerpt

if TYPE_CHECKING:
    from remit.packages.manifest import Manifest

MANIFEST_NAME = "manifest.json"
TIERS = ("HOT", "HO2", "HO1")

PLANES = {"hot": ("HOT/", "HO2/", "HO1/"), "ho2": ("HO2/", "HO1/"), "ho1": ("HO1/",)}
"""By plane, the folders in which its packages may own files."""

RESERVED = ("HOT/installed/", "HOT/registries/", "HOT/keys/")
"""Folders in which no package may own files."""

# A ustar header stores a path as at most 155 and 100 bytes, cut at a slash. A path of 192 bytes
# whose parts have at most 64 bytes always has such a slash.
_PATH_BYTES = 192
_PART_BYTES = 64

_MAX_QUOTED = 100

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_NOT_IN_PATHS = re.compile('[<>:"|?*]')
_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?", re.I)


def path_problem(path: str) -> tuple[str, str]:
    r"""Return ``(code, reason)`` if ``path`` cannot be an asset's path; two empty texts otherwise.

    A path is relative, inside ``HOT/``, ``HO2/`` or ``HO1/``, in Unicode's form NFC, its parts
    separated by single slashes, at most 192 bytes of UTF-8, a part at most 64. Every file system
    stores the path unchanged: no part is ``.`` or ``..`` or a reserved name of Windows, ends with a
    dot or a space, or contains a control character or one of ``\\ < > : " | ? *``. Reserved folders
    are not refused here.

    The code is ``absolute_path``, also for a drive letter and colon; ``parent_path`` for a part
    ``..``; ``path_too_long``; or ``bad_path`` for all else. The reason continues a sentence that
    begins with the path.

    Args:
        path: any text.
    """
    parts = path.split("/")
    if path.startswith(("/", "\\")) or re.match("[A-Za-z]:", path):
        return "absolute_path", "is absolute"
    if ".." in re.split(r"[/\\]", path):
        return "parent_path", "leads out of the package with '..'"
    if unseen(path):
        return "bad_path", "contains a control character"
    if len(path.encode()) > _PATH_BYTES or max(len(p.encode()) for p in parts) > _PART_BYTES:
        return "path_too_long", f"is longer than {_PATH_BYTES} bytes, or a part than {_PART_BYTES}"
    if "\\" in path:
        return "bad_path", "contains a backslash; parts are separated by '/'"
    if found := _NOT_IN_PATHS.search(path):
        return "bad_path", f"contains {found[0]!r}, which not every file system can store"
    if "" in parts or "." in parts:
        return "bad_path", "has an empty part or a part '.'"
    if parts[0] not in TIERS or len(parts) == 1:
        return "bad_path", "is not inside HOT/, HO2/ or HO1/"
    if unicodedata.normalize("NFC", path) != path:
        return "bad_path", "is not in Unicode's form NFC"
    for part in parts:
        if _RESERVED.fullmatch(part):
            return "bad_path", f"has the part {part!r}, a reserved name on Windows"
        if part.endswith((".", " ")):
            return "bad_path", f"has the part {part!r}, whose end Windows drops"
    return "", ""


def is_in_plane(manifest: Manifest, path: str) -> bool:
    """Return True if a package's plane lets the package own a file.

    The plane is the tier that the manifest names; :data:`PLANES` lists its folders. Every package
    may own its specification and its acceptance cases, which are in ``HOT/``. Reserved folders are
    not excluded here.

    Args:
        manifest: the package's manifest.
        path: relative to the root.
    """
    own = (f"HOT/specs/{manifest.spec_id}.json", f"HOT/acceptance/{manifest.package_id}.json")
    return path in own or path.startswith(PLANES[manifest.plane_id])


def is_reserved(path: str) -> bool:
    """Return True if ``path`` is in a folder in which no package may own files.

    The folders are :data:`RESERVED`; the folder itself counts too. Case counts.

    Args:
        path: relative to the root.
    """
    return f"{path}/".startswith(RESERVED)


def folded(path: str) -> str:
    """Return a key that is equal for paths that a file system may take for one.

    Such paths differ only in upper and lower case or in Unicode's form.

    Args:
        path: any text.
    """
    decomposed = unicodedata.normalize("NFD", path)
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", decomposed.casefold()))


def unseen(text: str) -> str:
    """Return the first invisible character of ``text``; empty if all are visible.

    Invisible are control characters (tab and newline too), lone surrogates, line separators, and
    characters that change the direction of writing.

    Args:
        text: any text.
    """
    found = _CONTROL.search(text)
    return found[0] if found else ""


def shown(text: str) -> str:
    """Return at most 100 characters of ``text`` in quotes, invisible ones escaped."""
    text = excerpt(text, _MAX_QUOTED)
    return repr(text) if text.isprintable() else ascii(text)
