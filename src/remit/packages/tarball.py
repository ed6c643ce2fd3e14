"""``.tar.gz`` of plain files: one canonical form to write, any safe archive to read (SPEC 10)."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Self

from remit.packages.errors import ArchiveError, PackError
from remit.packages.paths import MANIFEST_NAME, path_problem

if TYPE_CHECKING:
    from remit.kernel.settings import PackageSettings

__all__ = ["ArchiveLimits", "canonical_targz", "read_targz", "refuse"]

# ustar (POSIX.1-1988), gzip (RFC 1952) and deflate (RFC 1951).
_BLOCK, _NAME, _PREFIX = 512, 100, 155
_GLOBAL_HEADERS = 16
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no time, no name, unknown system
_STORED = 65535

_KINDS = {
    tarfile.LNKTYPE: ("link", "a hard link"),
    tarfile.SYMTYPE: ("link", "a symbolic link"),
    tarfile.CHRTYPE: ("device", "a character device"),
    tarfile.BLKTYPE: ("device", "a block device"),
    tarfile.FIFOTYPE: ("fifo", "a named pipe"),
    tarfile.GNUTYPE_SPARSE: ("sparse", "a sparse file"),
}
_REPACK = "Ask its maker for a .tar.gz of plain files; docs/package-format.md describes it."


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may cost before it is known to be a package.

    Attributes:
        compressed_bytes: of the archive as it came.
        unpacked_bytes: of the tar archive in it, headers included.
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
    manifest_bytes: int = 4_194_304
    path_bytes: int = 192

    @classmethod
    def from_settings(cls, settings: PackageSettings) -> Self:
        """The limits that ``[packages]`` sets."""
        return cls(
            settings.compressed_bytes, settings.unpacked_bytes, settings.ratio, settings.files,
            settings.file_bytes,
        )  # fmt: skip


def canonical_targz(items: Iterable[tuple[str, bytes, int]]) -> bytes:
    """A ``.tar.gz`` of plain files: same items, same bytes, on any machine.

    Args:
        items: path, content and mode (such as ``0o755``) of each file, in the order of the archive.

    Raises:
        PackError: ``path_too_long``: no ustar header can hold a path.
    """
    tar = b"".join(
        _header(name, len(data), mode) + data + bytes(-len(data) % _BLOCK)
        for name, data, mode in items
    )
    return _stored_gzip(tar + bytes(2 * _BLOCK))


def _header(name: str, size: int, mode: int) -> bytes:
    """A ustar header. ``tarfile`` writes device numbers differently from version to version."""
    raw, prefix = name.encode(), b""
    if len(raw) > _NAME:
        cut = raw.rfind(b"/", 0, _PREFIX + 1)  # the longest prefix, like GNU tar
        if cut < 0 or len(raw) - cut - 1 > _NAME:
            raise PackError(
                "path_too_long",
                f"The path {name!a} does not fit into an archive's header.",
                next_step="Give the file or its folders shorter names.",
            )
        prefix, raw = raw[:cut], raw[cut + 1 :]
    head = raw.ljust(_NAME, b"\0") + b"%07o\0" % mode + b"0000000\0" * 2  # owner and group 0
    head += b"%011o\0" % size + b"00000000000\0"  # time 0
    tail = b"0" + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2  # device 0
    tail += prefix.ljust(_PREFIX, b"\0") + bytes(12)
    return head + b"%06o\0 " % (sum(head) + 8 * ord(" ") + sum(tail)) + tail


def _stored_gzip(data: bytes) -> bytes:
    """gzip without compression: no two versions of a compressor promise the same bytes."""
    pieces = [_GZIP_HEAD]
    for start in range(0, len(data), _STORED):
        block = data[start : start + _STORED]
        size = len(block)
        pieces.append(bytes([start + size == len(data)]))
        pieces += [size.to_bytes(2, "little"), (size ^ 0xFFFF).to_bytes(2, "little"), block]
    pieces.append(zlib.crc32(data).to_bytes(4, "little"))
    pieces.append((len(data) & 0xFFFFFFFF).to_bytes(4, "little"))
    return b"".join(pieces)


def read_targz(data: bytes, limits: ArchiveLimits) -> dict[str, bytes]:
    """Content by path of the plain files in an untrusted archive; directories are passed over.

    Raises:
        ArchiveError: it is damaged, not safe to unpack, or beyond ``limits``.
    """
    tar = _decompress(data, limits)
    files: dict[str, bytes] = {}
    seen = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:", encoding="utf-8") as archive:
            for member in archive:
                seen += 1
                # tarfile copies these into every member that follows; `git archive` makes one.
                if len(archive.pax_headers) > _GLOBAL_HEADERS:
                    refuse("odd_header", "The archive has too many global pax headers.")
                archive.members = []  # type: ignore[attr-defined]  # it keeps all it has read
                name = _safe_name(member, limits)
                if not member.isdir():
                    _check_file(member, name, files, limits)
                    content = archive.extractfile(member)
                    assert content is not None, "it is a plain file"
                    files[name] = content.read()
                if len(files) > limits.files or seen > 2 * limits.files + 1:
                    refuse(
                        "too_many_files",
                        f"The archive has more than the {limits.files} files allowed.",
                        "Split the package, or raise the limit if you trust it.",
                    )
            end = archive.offset
    except RecursionError:  # one header that renames the next, hundreds of times
        refuse("damaged", "The archive's headers are nested too deeply.")
    except (tarfile.TarError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        refuse("damaged", f"The archive's tar data is damaged: {error}.")
    if tar.count(0, end) != len(tar) - end:  # where tarfile stops without a word
        refuse("damaged", "A header in the archive is damaged, or data follows its end.")
    return files


def _decompress(data: bytes, limits: ArchiveLimits) -> bytes:
    if not data.startswith(_GZIP_MAGIC):
        refuse("not_gzip", "The archive is not a gzip file.")
    most = min(limits.unpacked_bytes, limits.ratio * len(data))
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        tar = inflate.decompress(data, most + 1)
    except zlib.error:
        refuse("damaged", "The archive's compressed data is damaged.", "Download it again.")
    if len(tar) > limits.unpacked_bytes:
        refuse(
            "unpacked_too_large",
            f"Unpacked, the archive has more than the {limits.unpacked_bytes} bytes allowed.",
            "Raise the limit if you trust it.",
        )
    if len(tar) > most:
        refuse("ratio", f"The archive unpacks to more than {limits.ratio} times its size.")
    if not inflate.eof:
        refuse("truncated", "The archive ends too early.", "Download it again.")
    if inflate.unused_data.startswith(_GZIP_MAGIC):
        refuse("several_members", "The archive is several gzip files in one.")
    if inflate.unused_data:
        refuse("trailing_data", f"{len(inflate.unused_data)} bytes follow the archive's end.")
    return tar


def _safe_name(member: tarfile.TarInfo, limits: ArchiveLimits) -> str:
    """The member's path without a leading ``./``; of the directory ``./`` itself ``"."``."""
    name = member.name
    while name.startswith("./"):
        name = name[2:]
    if len(name.encode(errors="surrogateescape")) > limits.path_bytes:
        refuse(
            "path_too_long",
            f"The path {name!a} in the archive is longer than the {limits.path_bytes} bytes "
            "allowed.",
        )
    if name == MANIFEST_NAME or (name == "." and member.isdir()):
        return name
    code, problem = path_problem(f"{name}/x" if member.isdir() else name)
    if code:
        refuse(code, f"The path {name!a} in the archive {problem}.")
    return name


def _check_file(
    member: tarfile.TarInfo, name: str, files: dict[str, bytes], limits: ArchiveLimits
) -> None:
    if member.issparse() or member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        kind = tarfile.GNUTYPE_SPARSE if member.issparse() else member.type
        code, what = _KINDS.get(kind, ("odd_header", f"of the unknown kind {kind!a}"))
        refuse(code, f"{name!a} in the archive is {what}; a package holds only plain files.")
    if name in files:
        code = "manifest_twice" if name == MANIFEST_NAME else "duplicate_member"
        refuse(code, f"The archive holds {name!r} twice.")
    if member.size < 0:
        refuse("damaged", f"The size of {name!r} in the archive is negative.")
    most = limits.manifest_bytes if name == MANIFEST_NAME else limits.file_bytes
    if member.size > most:
        refuse(
            "manifest_too_large" if name == MANIFEST_NAME else "file_too_large",
            f"{name!r} in the archive has {member.size} bytes, more than the {most} allowed.",
            "Split the package, or raise the limit if you trust it.",
        )


def refuse(code: str, message: str, next_step: str = _REPACK) -> NoReturn:
    """Raises :class:`ArchiveError`."""
    raise ArchiveError(code, message, next_step=next_step)
