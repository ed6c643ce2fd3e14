"""Reads a gzip-compressed ustar archive as if its author meant harm."""

from __future__ import annotations

import zlib
from typing import NoReturn

from remit.packages.errors import ArchiveError
from remit.packages.gzipping import GZIP_MAGIC, GZIP_PLAIN
from remit.packages.limits import ArchiveLimits
from remit.packages.manifest import MANIFEST_NAME
from remit.packages.paths import path_problem
from remit.packages.ustar import BLOCK, checksum, header, name_in

__all__ = ["CHUNK", "TarReader", "refuse"]

CHUNK = 1 << 16
"""Bytes in hand at once; no result depends on it."""

_KINDS = {
    b"1": ("link", "is a hard link"),
    b"2": ("link", "is a symbolic link"),
    b"3": ("device", "is a character device"),
    b"4": ("device", "is a block device"),
    b"5": ("directory", "is a directory"),
    b"6": ("fifo", "is a named pipe"),
    b"S": ("sparse", "is a sparse file"),
    b"x": ("extended_header", "is a pax header, which can rename what follows"),
    b"g": ("extended_header", "is a global pax header, which can rename what follows"),
    b"L": ("extended_header", "is a GNU long name, which renames what follows"),
    b"K": ("extended_header", "is a GNU long link name"),
}
_REPACK = "Ask whoever made it for one in the format of docs/package-format.md."


class TarReader:
    """A gzip-compressed tar archive, read forward and never beyond the limits."""

    def __init__(self, data: bytes, limits: ArchiveLimits) -> None:
        if not data.startswith(GZIP_PLAIN):
            refuse(
                "not_gzip",
                "The archive is not a gzip file without optional header fields.",
                "A package is a .tar.gz file in the format of docs/package-format.md.",
            )
        self._data = memoryview(data)
        self._limits = limits
        self._fed = 0
        self._pending = b""
        self._unpacked = 0
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def member(self) -> tuple[str, int] | None:
        """Name and size of the next file; ``None`` at the end."""
        block = self._take(BLOCK)
        if not any(block):
            if any(self._take(BLOCK)):
                refuse("damaged", "The archive's end is not two blocks of zeros.", _REPACK)
            return None
        if checksum(block) != block[148:156].strip(b" \0"):
            refuse(
                "damaged",
                "A header in the archive does not match its checksum.",
                "Get the archive anew.",
            )
        raw = name_in(block)
        shown = ascii(raw.decode(errors="replace"))
        kind = block[156:157]
        if kind in _KINDS:
            code, what = _KINDS[kind]
            refuse(code, f"{shown} in the archive {what}; a package holds only plain files.")
        name = self._name(raw, shown)
        try:
            size = int(block[124:135], 8)
        except ValueError:
            size = -1
        if size < 0 or block != header(name, size):
            refuse(
                "odd_header",
                f"The header of {shown} in the archive differs from the one that its name and size "
                "give: another kind, mode, owner, time or format.",
            )
        if size > self._limits.file_bytes:
            refuse(
                "file_too_large",
                f"{shown} in the archive has {size} bytes, more than the "
                f"{self._limits.file_bytes} allowed.",
                "Raise the limit if you trust it.",
            )
        return name, size

    def content(self, name: str, size: int) -> bytes:
        """The bytes of the file whose header was read last."""
        content = self._take(size)
        if any(self._take(-size % BLOCK)):
            refuse("damaged", f"There is something hidden behind {name!r} in the archive.")
        return content

    def end(self) -> None:
        """Nothing may follow: neither in the tar archive nor behind the gzip member."""
        if self._buffer or self._more():
            refuse("trailing_data", "Something follows the end of the tar archive.")
        if not self._inflate.eof:
            self._cut()
        rest = self._inflate.unused_data + self._data[self._fed :]
        if rest[:2] == GZIP_MAGIC:
            refuse("several_members", "The archive is several gzip files in one.")
        if rest:
            refuse("trailing_data", f"{len(rest)} bytes follow the end of the archive.")

    def _name(self, raw: bytes, shown: str) -> str:
        if len(raw) > self._limits.path_bytes:
            refuse(
                "path_too_long",
                f"{shown} in the archive is longer than the {self._limits.path_bytes} bytes "
                "allowed.",
            )
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            refuse("bad_path", f"{shown} in the archive is not UTF-8.")
        code, problem = path_problem(name)
        if code and name != MANIFEST_NAME:
            refuse(code, f"The path {shown} in the archive {problem}.")
        return name

    def _take(self, count: int) -> bytes:
        """Exactly that many bytes of the tar archive."""
        while len(self._buffer) < count:
            if not (chunk := self._more()):
                self._cut()
            self._buffer += chunk
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _more(self) -> bytes:
        """Some more bytes of the tar archive; none at its end."""
        chunk = b""
        while not chunk and not self._inflate.eof:
            if not self._pending:
                self._pending = bytes(self._data[self._fed : self._fed + CHUNK])
                self._fed += len(self._pending)
            fed = self._pending
            try:
                chunk = self._inflate.decompress(fed, CHUNK)
            except zlib.error:
                refuse(
                    "damaged", "The archive's compressed data is damaged.", "Get the archive anew."
                )
            self._pending = self._inflate.unconsumed_tail
            if not fed:
                break
        self._unpacked += len(chunk)
        if self._unpacked > self._limits.unpacked_bytes:
            refuse(
                "unpacked_too_large",
                f"Unpacked, the archive has more than the {self._limits.unpacked_bytes} bytes "
                "allowed.",
                "Raise the limit if you trust it.",
            )
        if self._unpacked > self._limits.ratio * len(self._data):
            refuse(
                "ratio",
                f"The archive unpacks to more than {self._limits.ratio} times its size.",
            )
        return chunk

    def _cut(self) -> NoReturn:
        refuse("truncated", "The archive ends in the middle of something.", "Get the archive anew.")


def refuse(code: str, message: str, next_step: str = _REPACK) -> NoReturn:
    """Raises :class:`ArchiveError`."""
    raise ArchiveError(code, message, next_step=next_step)
