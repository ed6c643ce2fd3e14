"""A package as one file: a gzip-compressed ustar archive with one way of writing it (SPEC 10).

Every header that :func:`pack` writes follows from a name and a size, so the reader makes that
header anew and compares: there is nothing in it to be understood in two ways. Content is stored,
not compressed, as no two versions of a compressor promise the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from remit.canonical import sha256_hex
from remit.packages.errors import ArchiveError, PackError
from remit.packages.manifest import MANIFEST_NAME, Manifest, folded, path_problem

__all__ = ["Archive", "ArchiveLimits", "pack", "read_archive", "write_archive"]

# Constants of ustar (POSIX.1-1988), gzip (RFC 1952) and deflate (RFC 1951).
_BLOCK = 512
_NAME = 100
_PREFIX = 155
_USTAR = b"ustar\x0000"
_END = bytes(2 * _BLOCK)
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no time, no name, unknown system
_GZIP_PLAIN = b"\x1f\x8b\x08\x00"  # deflate, none of the optional fields
_STORED = 65535
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
_CHUNK = 1 << 16  # bytes in hand at once; no result depends on it
_REPACK = "Ask whoever made it for one in the format of docs/package-format.md."


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may cost before it is known to be a package.

    Attributes:
        compressed_bytes: of the archive as it came.
        unpacked_bytes: of the tar archive in it, headers and all.
        ratio: unpacked bytes for each byte of the archive.
        files: with ``manifest.json``.
        file_bytes: of one file.
        manifest_bytes: of ``manifest.json``.
        path_bytes: of one path, in UTF-8.
    """

    compressed_bytes: int
    unpacked_bytes: int
    ratio: int
    files: int
    file_bytes: int
    manifest_bytes: int
    path_bytes: int


@dataclass(frozen=True, slots=True)
class Archive:
    """A package whose every file is what its manifest says.

    Attributes:
        files: content by path, without the manifest, in the order of the archive.
        manifest_json: the manifest's bytes as they came.
        digest: ``sha256:`` and the SHA-256 of the whole archive in hex; what a signature is over.
    """

    manifest: Manifest
    files: Mapping[str, bytes]
    digest: str
    manifest_json: bytes


def pack(directory: Path) -> bytes:
    """The package in ``directory`` as an archive: same content, same bytes, on any machine.

    Raises:
        ManifestError: ``manifest.json`` is not a manifest.
        PackError: the directory holds anything but what the manifest declares; names the file.
    """
    stream = io.BytesIO()
    write_archive(directory, stream)
    return stream.getvalue()


def write_archive(directory: Path, stream: BinaryIO) -> str:
    """Writes what :func:`pack` returns to ``stream``.

    Nothing is written before the whole directory has been checked.

    Returns:
        The archive's digest, ``sha256:`` and 64 hex digits.

    Raises:
        ManifestError, PackError: as :func:`pack`.
    """
    content = _directory(directory)
    digest = hashlib.sha256()
    for piece in _gzip(_tar(content)):
        digest.update(piece)
        stream.write(piece)
    return f"sha256:{digest.hexdigest()}"


def read_archive(
    stream: BinaryIO, limits: ArchiveLimits, *, expected_id: str | None = None
) -> Archive:
    """The package in an archive, verified whole; nothing is written anywhere.

    Memory: the archive's own bytes and those of the files it declares, both within ``limits``.

    Args:
        expected_id: the ``package_id`` that was asked for.

    Raises:
        ArchiveError: it is not a package, is not safe, or is beyond ``limits``.
        ManifestError: its manifest is not one.
    """
    data = _read(stream, limits)
    tar = _Tar(data, limits)
    first = tar.member()
    if first is None:
        _refuse("manifest_missing", "The archive is empty: there is no manifest.json.")
    name, size = first
    if name != MANIFEST_NAME:
        _refuse(
            "manifest_not_first",
            f"The archive begins with {name!r}; manifest.json is missing or comes later.",
        )
    if size > limits.manifest_bytes:
        _refuse(
            "manifest_too_large",
            f"manifest.json has {size} bytes, more than the {limits.manifest_bytes} allowed.",
            "Split the package, or raise the limit if you trust it.",
        )
    manifest_json = tar.content(name, size)
    manifest = Manifest.parse(manifest_json)
    if expected_id is not None and manifest.package_id != expected_id:
        _refuse(
            "wrong_id",
            f"The archive holds {manifest.package_id}, not {expected_id}.",
            "Check what you asked for, and where the archive came from.",
        )
    if len(manifest.assets) >= limits.files:
        _refuse(
            "too_many_files",
            f"The package declares {len(manifest.assets) + 1} files with its manifest, more than "
            f"the {limits.files} allowed.",
            "Split the package, or raise the limit if you trust it.",
        )
    files = _files(tar, manifest)
    tar.end()
    return Archive(manifest, files, f"sha256:{sha256_hex(data)}", manifest_json)


def _files(tar: _Tar, manifest: Manifest) -> dict[str, bytes]:
    declared = {asset.path: asset.sha256 for asset in manifest.assets}
    twins = {folded(path): path for path in declared}
    files: dict[str, bytes] = {}
    last = b""
    while (member := tar.member()) is not None:
        name, size = member
        if name == MANIFEST_NAME:
            _refuse("manifest_twice", "The archive holds manifest.json twice.")
        if name in files:
            _refuse("duplicate_member", f"The archive holds {name!r} twice.")
        if name not in declared:
            if twin := twins.get(folded(name)):
                _refuse(
                    "twin_member",
                    f"{name!r} in the archive is one file with {twin!r} where case does not count.",
                )
            _refuse(
                "undeclared_file", f"The archive holds {name!r}, which its manifest does not name."
            )
        if name.encode() < last:
            _refuse("wrong_order", f"{name!r} in the archive is not in the order of bytes.")
        last = name.encode()
        content = tar.content(name, size)
        found = f"sha256:{sha256_hex(content)}"
        if found != declared[name]:
            _refuse(
                "wrong_hash",
                f"{name!r} in the archive has the hash {found}, its manifest says "
                f"{declared[name]}.",
                "Get the archive anew; if it stays so, do not trust where it came from.",
            )
        files[name] = content
    if missing := sorted(set(declared) - set(files)):
        _refuse(
            "missing_asset",
            f"The archive lacks {len(missing)} of the files in its manifest, first {missing[0]!r}.",
        )
    return files


class _Tar:
    """A gzip-compressed tar archive, read forward and never beyond the limits."""

    def __init__(self, data: bytes, limits: ArchiveLimits) -> None:
        if not data.startswith(_GZIP_PLAIN):
            _refuse(
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
        block = self._take(_BLOCK)
        if not any(block):
            if any(self._take(_BLOCK)):
                _refuse("damaged", "The archive's end is not two blocks of zeros.", _REPACK)
            return None
        if _checksum(block) != block[148:156].strip(b" \0"):
            _refuse(
                "damaged",
                "A header in the archive does not match its checksum.",
                "Get the archive anew.",
            )
        raw = block[:_NAME].split(b"\0")[0]
        if block[257:263] == _USTAR[:6] and (prefix := block[345:500].split(b"\0")[0]):
            raw = prefix + b"/" + raw
        shown = ascii(raw.decode(errors="replace"))
        kind = block[156:157]
        if kind in _KINDS:
            code, what = _KINDS[kind]
            _refuse(code, f"{shown} in the archive {what}; a package holds only plain files.")
        name = self._name(raw, shown)
        try:
            size = int(block[124:135], 8)
        except ValueError:
            size = -1
        if size < 0 or block != _header(name, size):
            _refuse(
                "odd_header",
                f"The header of {shown} in the archive differs from the one that its name and size "
                "give: another kind, mode, owner, time or format.",
            )
        if size > self._limits.file_bytes:
            _refuse(
                "file_too_large",
                f"{shown} in the archive has {size} bytes, more than the "
                f"{self._limits.file_bytes} allowed.",
                "Raise the limit if you trust it.",
            )
        return name, size

    def content(self, name: str, size: int) -> bytes:
        """The bytes of the file whose header was read last."""
        content = self._take(size)
        if any(self._take(-size % _BLOCK)):
            _refuse("damaged", f"There is something hidden behind {name!r} in the archive.")
        return content

    def end(self) -> None:
        """Nothing may follow: neither in the tar archive nor behind the gzip member."""
        if self._buffer or self._more():
            _refuse("trailing_data", "Something follows the end of the tar archive.")
        if not self._inflate.eof:
            self._cut()
        rest = self._inflate.unused_data + self._data[self._fed :]
        if rest[:2] == _GZIP_HEAD[:2]:
            _refuse("several_members", "The archive is several gzip files in one.")
        if rest:
            _refuse("trailing_data", f"{len(rest)} bytes follow the end of the archive.")

    def _name(self, raw: bytes, shown: str) -> str:
        if len(raw) > self._limits.path_bytes:
            _refuse(
                "path_too_long",
                f"{shown} in the archive is longer than the {self._limits.path_bytes} bytes "
                "allowed.",
            )
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            _refuse("bad_path", f"{shown} in the archive is not UTF-8.")
        code, problem = path_problem(name)
        if code and name != MANIFEST_NAME:
            _refuse(code, f"The path {shown} in the archive {problem}.")
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
                self._pending = bytes(self._data[self._fed : self._fed + _CHUNK])
                self._fed += len(self._pending)
            fed = self._pending
            try:
                chunk = self._inflate.decompress(fed, _CHUNK)
            except zlib.error:
                _refuse(
                    "damaged", "The archive's compressed data is damaged.", "Get the archive anew."
                )
            self._pending = self._inflate.unconsumed_tail
            if not fed:
                break
        self._unpacked += len(chunk)
        if self._unpacked > self._limits.unpacked_bytes:
            _refuse(
                "unpacked_too_large",
                f"Unpacked, the archive has more than the {self._limits.unpacked_bytes} bytes "
                "allowed.",
                "Raise the limit if you trust it.",
            )
        if self._unpacked > self._limits.ratio * len(self._data):
            _refuse(
                "ratio",
                f"The archive unpacks to more than {self._limits.ratio} times its size.",
            )
        return chunk

    def _cut(self) -> NoReturn:
        _refuse(
            "truncated", "The archive ends in the middle of something.", "Get the archive anew."
        )


def _read(stream: BinaryIO, limits: ArchiveLimits) -> bytes:
    pieces = bytearray()
    while piece := stream.read(_CHUNK):
        pieces += piece
        if len(pieces) > limits.compressed_bytes:
            _refuse(
                "archive_too_large",
                f"The archive has more than the {limits.compressed_bytes} bytes allowed.",
                "Raise the limit if you trust it.",
            )
    return bytes(pieces)


def _refuse(code: str, message: str, next_step: str = _REPACK) -> NoReturn:
    raise ArchiveError(code, message, next_step=next_step)


def _directory(directory: Path) -> dict[str, bytes]:
    """What the directory holds, manifest first, in order, once all of it is as declared."""
    manifest_json = b""
    found: dict[str, bytes] = {}
    try:
        manifest_json = _file(directory / MANIFEST_NAME, MANIFEST_NAME)
        manifest = Manifest.parse(manifest_json, str(directory / MANIFEST_NAME))
        declared = {asset.path: asset.sha256 for asset in manifest.assets}
        for path in _walk(directory):
            if path == MANIFEST_NAME:
                continue
            _check_plain(directory / path, path)
            if path not in declared:
                raise PackError(
                    "undeclared_file",
                    f"{path!a} in {directory} is not in the manifest.",
                    next_step="Add it to 'assets', or take it out of the directory.",
                )
            found[path] = _file(directory / path, path)
            actual = f"sha256:{sha256_hex(found[path])}"
            if actual != declared[path]:
                raise PackError(
                    "wrong_hash",
                    f"{path!r} in {directory} has the hash {actual}, the manifest says "
                    f"{declared[path]}.",
                    next_step="Write the file's hash into the manifest if the file is right.",
                )
    except OSError as error:
        raise PackError(
            "manifest_missing" if not manifest_json else "unreadable",
            f"{error.filename or directory} cannot be read: {error.strerror}.",
            next_step="A package is a directory with a manifest.json that you can read.",
        ) from error
    if missing := sorted(set(declared) - set(found)):
        raise PackError(
            "missing_asset",
            f"{missing[0]!r} is in the manifest, but not in {directory}.",
            next_step="Add the file, or take it out of 'assets'.",
        )
    ordered = sorted(found.items(), key=lambda item: item[0].encode())
    return {MANIFEST_NAME: manifest_json, **dict(ordered)}


def _walk(directory: Path) -> Iterator[str]:
    """Every path under ``directory`` but those of directories themselves; no link is followed."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(directory / below) as entries:
            for entry in entries:
                path = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{path}/")
                else:
                    yield path


def _check_plain(path: Path, name: str) -> None:
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        linked = stat.S_ISLNK(mode)
        what = "a link" if linked else "a directory, device, pipe or socket"
        raise PackError(
            "link" if linked else "not_a_file",
            f"{name!a} is {what}; a package holds only plain files.",
            next_step="Put the file itself in its place.",
        )


def _file(path: Path, name: str) -> bytes:
    """A plain file's bytes."""
    _check_plain(path, name)
    # Without following or waiting, should it have been replaced since.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        return stream.read()


def _tar(content: Mapping[str, bytes]) -> Iterator[bytes]:
    for name, data in content.items():
        yield _header(name, len(data)) + data + bytes(-len(data) % _BLOCK)
    yield _END


def _header(name: str, size: int) -> bytes:
    """The one ustar header of a file with that name and size."""
    raw, prefix = name.encode(), b""
    if len(raw) > _NAME:
        cut = raw.rindex(b"/", 0, _PREFIX + 1)  # the longest prefix, as most programs do
        prefix, raw = raw[:cut], raw[cut + 1 :]
    block = b"".join(
        (
            raw.ljust(_NAME, b"\0"),
            b"0000644\0",
            b"0000000\0",  # user
            b"0000000\0",  # group
            b"%011o\0" % size,
            b"00000000000\0",  # time
            b"        ",  # the checksum counts as spaces
            b"0",
            bytes(_NAME),
            _USTAR,
            bytes(64),  # names of user and group
            b"0000000\0",  # device
            b"0000000\0",
            prefix.ljust(_PREFIX, b"\0"),
            bytes(12),
        )
    )
    return block[:148] + _checksum(block) + b"\0 " + block[156:]


def _checksum(block: bytes) -> bytes:
    return b"%06o" % (sum(block[:148]) + 8 * ord(" ") + sum(block[156:]))


def _gzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces as one gzip member of stored blocks, all full but the last."""
    yield _GZIP_HEAD
    check, size, buffer = 0, 0, bytearray()
    for piece in pieces:
        check = zlib.crc32(piece, check)
        size += len(piece)
        buffer += piece
        while len(buffer) > _STORED:
            yield _stored(bytes(buffer[:_STORED]), last=False)
            del buffer[:_STORED]
    yield _stored(bytes(buffer), last=True)
    yield check.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")


def _stored(data: bytes, *, last: bool) -> bytes:
    length = len(data)
    return (
        bytes([last])
        + length.to_bytes(2, "little")
        + (length ^ 0xFFFF).to_bytes(2, "little")
        + data
    )
