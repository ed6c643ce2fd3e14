"""Archives of packages: writes one canonical ``.tar.gz``, reads any safe one."""

from __future__ import annotations

import functools
import io
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Self

from remit.kernel.durable_files import read_regular
from remit.kernel.installed_files import digest_of
from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest
from remit.packages.paths import MANIFEST_NAME, TIERS, folded, path_problem, shown

if TYPE_CHECKING:
    from remit.kernel.settings import PackageSettings


# ustar (POSIX.1-1988), gzip (RFC 1952) and deflate (RFC 1951).
_BLOCK, _NAME, _PREFIX = 512, 100, 155
_GZIP_MAGIC = b"\x1f\x8b"
# A header without time and name, of an unknown system.
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_MAX_BLOCK_BYTES = 65535
_MODE = 0o644  # Every file of a package has this mode.
# A size is octal, or in GNU's base 256.
_SIZE = re.compile(rb" *[0-7]*[ \0]*|\x80.{11}", re.DOTALL)

_MANIFEST_BYTES = 4_194_304
_GLOBAL_HEADERS = 16
_KINDS = {
    tarfile.LNKTYPE: ("link", "a hard link"),
    tarfile.SYMTYPE: ("link", "a symbolic link"),
    tarfile.CHRTYPE: ("device", "a character device"),
    tarfile.BLKTYPE: ("device", "a block device"),
    tarfile.FIFOTYPE: ("fifo", "a named pipe"),
    tarfile.GNUTYPE_SPARSE: ("sparse", "a sparse file"),
}
_REPACK = (
    "Ask the author of the package for a .tar.gz of plain files; docs/package-format.md "
    "describes the format."
)
_RAISE = "Split the package, or raise the limit if you trust it."
_UPDATE = "Take it out of the directory or correct 'assets': `remit package pack --update` does."
_DOWNLOAD = "Download the archive again; if the problem persists, do not trust its source."


@dataclass(frozen=True)
class Archive:
    """A package whose files are exactly those in its manifest, in memory; immutable.

    :meth:`from_directory` and :func:`read_archive` check this, the constructor does not.
    :attr:`data` gives the bytes of its archive, and :attr:`digest` their hash.

    Attributes:
        manifest: the parsed manifest.
        manifest_json: the manifest's bytes as received.
        files: content by path, without the manifest.
        recorded: the bytes as the archive was read, if the ledger records exactly these. They may
            differ from the canonical form, which earlier versions did not write. Else empty.
    """

    manifest: Manifest
    manifest_json: bytes
    files: Mapping[str, bytes]
    recorded: bytes = b""

    @functools.cached_property
    def data(self) -> bytes:
        """The archive's bytes: :attr:`recorded`, or the canonical form of the files if that is
        empty.

        The canonical form has the manifest first, and then the files sorted by the bytes of their
        paths. It is computed once. PackageError (``path_too_long``) is raised if a path does not
        fit into a ustar header.
        """
        if self.recorded:
            return self.recorded
        ordered = sorted(self.files.items(), key=lambda item: item[0].encode())
        content = [(MANIFEST_NAME, self.manifest_json), *ordered]
        return canonical_targz((name, data, _MODE) for name, data in content)

    @functools.cached_property
    def digest(self) -> str:
        """``sha256:`` and 64 hex digits of :attr:`data`, which signatures sign."""
        return digest_of(self.data)

    @classmethod
    def from_directory(cls, directory: Path) -> Self:
        """Return the package in a directory, which is only read.

        Hidden files count as files of the package; empty folders are ignored. Sizes are not
        limited.

        Args:
            directory: a folder with ``manifest.json`` at its top.

        Raises:
            PackageError: ``manifest_missing``: there is no readable ``manifest.json``;
                ``unreadable``: another file or folder cannot be read; an error of
                :meth:`Manifest.parse`; ``link`` or ``not_a_file``: an entry is not a plain file;
                ``undeclared_file``: a file is not in the manifest; ``twin_member``: its path
                differs from a path in the manifest only in case; ``missing_asset``: a file of the
                manifest is missing; ``wrong_hash``: a file has another hash than the manifest
                states.
        """
        manifest_json = b""
        try:
            manifest_json = plain_file(directory / MANIFEST_NAME, MANIFEST_NAME)
            manifest = Manifest.parse(manifest_json, str(directory / MANIFEST_NAME))
            declared = {asset.path for asset in manifest.assets}
            files = {}
            for path in paths_in(directory):
                _check_plain(directory / path, path)
                if path != MANIFEST_NAME:
                    # Undeclared files are refused below without being read.
                    known = path in declared
                    files[path] = plain_file(directory / path, path) if known else b""
        except OSError as error:
            raise PackageError(
                "unreadable" if manifest_json else "manifest_missing",
                f"{error.filename or directory} cannot be read: {error.strerror}.",
                next_step="A package is a directory with a manifest.json that you can read.",
            ) from error
        _check_declared(manifest, files, str(directory), _UPDATE)
        return cls(manifest, manifest_json, files)


def pack(directory: Path) -> bytes:
    """Return the package in ``directory`` as an archive: same content, same bytes, on any machine.

    Writes nothing, and signs nothing.

    Args:
        directory: a folder with ``manifest.json`` at its top.

    Raises:
        PackageError: as :meth:`Archive.from_directory`; or ``path_too_long``: a path does not fit
            into an archive.
    """
    return Archive.from_directory(directory).data


def read_archive(
    stream: BinaryIO, limits: PackageSettings, *, expected_id: str = "", recorded: bool = False
) -> Archive:
    """Return the package in any safe ``.tar.gz``; writes nothing.

    The files must be exactly those in the manifest, with their hashes; signatures are not checked.
    A single folder at the top of the archive, which then holds all members, is left out of the
    paths. Modes, owners, times and empty folders are ignored. Memory: a few times the archive's
    bytes, packed and unpacked; ``limits`` bounds both. Reads ``stream`` to its end, but at most one
    byte beyond ``limits.compressed_bytes``.

    Args:
        stream: the archive; its OSError is raised unchanged.
        limits: limits of sizes, number of files and compression.
        expected_id: the requested package id; empty to accept any.
        recorded: True if the ledger records exactly these bytes; see :class:`Archive`.

    Raises:
        PackageError: by ``code``: ``archive_too_large``, ``unpacked_too_large``, ``ratio``,
            ``file_too_large``, ``manifest_too_large`` (above 4 MiB) or ``too_many_files``: a limit
            is exceeded; ``not_gzip``, ``damaged``, ``truncated``, ``several_members``,
            ``trailing_data`` or ``odd_header``: the bytes are not one plain gzip file with one tar
            archive; ``link``, ``device``, ``fifo`` or ``sparse``: a member is no plain file;
            ``duplicate_member`` or ``manifest_twice``: a path occurs twice; a code of
            :func:`~remit.packages.path_problem`; ``manifest_missing``; an error of
            :meth:`Manifest.parse`; ``wrong_id``: the package is another than ``expected_id``;
            ``undeclared_file``, ``twin_member``, ``missing_asset`` or ``wrong_hash``: as
            :meth:`Archive.from_directory`.
    """
    data = b""
    while piece := stream.read(limits.compressed_bytes + 1 - len(data)):
        data += piece
    if len(data) > limits.compressed_bytes:
        _refuse(
            "archive_too_large",
            f"The archive has more than the {limits.compressed_bytes} bytes allowed.",
            _RAISE,
        )
    files = _unpack(_decompress(data, limits), limits)
    if MANIFEST_NAME not in files:
        _refuse("manifest_missing", "The archive has no manifest.json at its top.")
    manifest_json = files.pop(MANIFEST_NAME)
    manifest = Manifest.parse(manifest_json)
    if expected_id and manifest.package_id != expected_id:
        _refuse(
            "wrong_id",
            f"The archive contains {manifest.package_id}, not {expected_id}.",
            "Check the requested id and the source of the archive.",
        )
    _check_declared(manifest, files, "the archive", _DOWNLOAD)
    return Archive(manifest, manifest_json, files, data if recorded else b"")


def canonical_targz(items: Iterable[tuple[str, bytes, int]]) -> bytes:
    """Return a ``.tar.gz`` of plain files: same items, same bytes, on any machine.

    The content is stored without compression. Paths are not checked, except for their length.

    Args:
        items: path, content and mode (such as ``0o755``) of each file, in the order of the archive.

    Raises:
        PackageError: ``path_too_long``: a path does not fit into a ustar header.
    """
    tar = b"".join(
        _header(name, len(data), mode) + data + bytes(-len(data) % _BLOCK)
        for name, data, mode in items
    )
    tar += bytes(2 * _BLOCK)
    # Stored without compression, because compressors differ between versions.
    pieces = [_GZIP_HEAD]
    for start in range(0, len(tar), _MAX_BLOCK_BYTES):
        block = tar[start : start + _MAX_BLOCK_BYTES]
        size = len(block)
        pieces.append(bytes([start + size == len(tar)]))
        pieces += [size.to_bytes(2, "little"), (size ^ 0xFFFF).to_bytes(2, "little"), block]
    pieces += [zlib.crc32(tar).to_bytes(4, "little"), (len(tar) & 0xFFFFFFFF).to_bytes(4, "little")]
    return b"".join(pieces)


def paths_in(directory: Path) -> Iterator[str]:
    """Yield the paths of all entries below a directory except directories, in no fixed order.

    A path is relative to the directory, with ``/``. Links are yielded and not followed.

    Args:
        directory: the directory to walk.

    Raises:
        OSError: a directory cannot be read.
        UnicodeEncodeError: a name cannot be encoded.
    """
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


def plain_file(path: Path, name: str) -> bytes:
    """Return the bytes of a plain file; a link is not followed.

    Args:
        path: the file.
        name: its name in errors.

    Raises:
        PackageError: ``link``: the file is a symbolic link; ``not_a_file``: it is a directory,
            device, pipe or socket.
        OSError: the file is missing or cannot be read.
    """
    _check_plain(path, name)
    return read_regular(path)  # The file may have been replaced since the check.


def _check_plain(path: Path, name: str) -> None:
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        linked = stat.S_ISLNK(mode)
        what = "a link" if linked else "a directory, device, pipe or socket"
        raise PackageError(
            "link" if linked else "not_a_file",
            f"{name!a} is {what}; a package holds only plain files.",
            next_step="Replace it with the file itself.",
        )


def _check_declared(
    manifest: Manifest,
    files: Mapping[str, bytes],
    where: str,
    next_step: str,
) -> None:
    """Raise PackageError unless the files are those in the manifest, with their hashes (gate G0A).

    Args:
        manifest: the manifest.
        files: content by path.
        where: the place of the files, for the message.
        next_step: the error's next step.
    """
    declared = {asset.path: asset.sha256 for asset in manifest.assets}
    twins = {folded(path): path for path in declared}
    for path in sorted(files.keys() | declared.keys()):
        digest = digest_of(files[path]) if path in files else ""
        if path not in declared:
            twin = twins.get(folded(path))
            code = "twin_member" if twin else "undeclared_file"
            problem = f"differs from {twin!r} only in case" if twin else "is not in the manifest"
        elif path not in files:
            code, problem = "missing_asset", "is in the manifest, but missing"
        elif digest != declared[path]:
            code = "wrong_hash"
            problem = f"has the hash {digest}, the manifest says {declared[path]}"
        else:
            continue
        raise PackageError(code, f"{path!a} in {where} {problem}.", next_step=next_step)


def _header(name: str, size: int, mode: int) -> bytes:
    """Return a ustar header. ``tarfile`` writes device numbers differently between versions."""
    raw, prefix = name.encode(), b""
    if len(raw) > _NAME:
        cut = raw.rfind(b"/", 0, _PREFIX + 1)  # GNU tar also takes the longest prefix.
        if cut < 0 or len(raw) - cut - 1 > _NAME:
            raise PackageError(
                "path_too_long",
                f"The path {name!a} is too long for an archive header.",
                next_step="Shorten the names of the file or its folders.",
            )
        prefix, raw = raw[:cut], raw[cut + 1 :]
    head = raw.ljust(_NAME, b"\0") + b"%07o\0" % mode + b"0000000\0" * 2  # owner and group 0
    head += b"%011o\0" % size + b"00000000000\0"  # time 0
    tail = b"0" + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2  # device 0
    tail += prefix.ljust(_PREFIX, b"\0") + bytes(12)
    return head + b"%06o\0 " % (sum(head) + 8 * ord(" ") + sum(tail)) + tail


def _decompress(data: bytes, limits: PackageSettings) -> bytes:
    if not data.startswith(_GZIP_MAGIC):
        _refuse("not_gzip", "The archive is not a gzip file.")
    most = min(limits.unpacked_bytes, limits.ratio * len(data))
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        tar = inflate.decompress(data, most + 1)
    except zlib.error:
        _refuse("damaged", "The archive's compressed data is damaged.", _DOWNLOAD)
    if len(tar) > limits.unpacked_bytes:
        _refuse(
            "unpacked_too_large",
            f"Unpacked, the archive has more than the {limits.unpacked_bytes} bytes allowed.",
            _RAISE,
        )
    if len(tar) > most:
        _refuse("ratio", f"The archive unpacks to more than {limits.ratio} times its size.")
    if not inflate.eof:
        _refuse("truncated", "The archive ends too early.", _DOWNLOAD)
    if inflate.unused_data.startswith(_GZIP_MAGIC):
        _refuse("several_members", "The archive consists of several gzip files.")
    if inflate.unused_data:
        _refuse("trailing_data", f"{len(inflate.unused_data)} bytes follow the archive's end.")
    return tar


def _unpack(tar: bytes, limits: PackageSettings) -> dict[str, bytes]:
    """Return the content by path of the plain files in a tar archive, without directories."""
    files: dict[str, bytes] = {}
    top = ""
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:", encoding="utf-8") as archive:
            for seen, member in enumerate(archive):
                # tarfile copies global headers into every later member; `git archive` makes one.
                if len(archive.pax_headers) > _GLOBAL_HEADERS:
                    _refuse("odd_header", "The archive has too many global pax headers.")
                if not seen:
                    top = _top_folder(f"{member.name}/" if member.isdir() else member.name)
                name = _safe_name(member, top)
                if not member.isdir():
                    start = member.offset_data - _BLOCK
                    size = tar[start + 124 : start + 136]
                    _check_file(member, size, name, files, limits)
                    content = archive.extractfile(member)
                    assert content is not None, "it is a plain file"
                    files[name] = content.read()
                if len(files) > limits.files or seen > 2 * limits.files:
                    _refuse(
                        "too_many_files",
                        f"The archive has more than the {limits.files} files allowed.",
                        _RAISE,
                    )
            end = archive.offset
    except RecursionError:  # Hundreds of headers each rename the next.
        _refuse("damaged", "The archive's headers are nested too deeply.")
    except (tarfile.TarError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        _refuse("damaged", f"The archive's tar data is damaged: {error}.")
    if tar.count(0, end) != len(tar) - end:  # tarfile stops at a damaged header without an error.
        _refuse("damaged", "A header in the archive is damaged, or data follows its end.")
    if len(tar) - end < 2 * _BLOCK:
        _refuse("truncated", "The archive ends without two blocks of zeros.", _DOWNLOAD)
    return files


def _top_folder(first: str) -> str:
    """Return the folder of the first member if all others may be in it, with its slash; or ""."""
    top, slash, _ = first.removeprefix("./").partition("/")
    usable = slash and top not in TIERS and path_problem(f"{TIERS[0]}/{top}") == ("", "")
    return f"{top}/" if usable else ""


def _safe_name(member: tarfile.TarInfo, top: str) -> str:
    """Return a member's path without ``./`` and ``top``; ``"."`` for the package's own directory.

    Raises PackageError if the path is not allowed in a package.
    """
    name = member.name
    while name.startswith("./"):
        name = name[2:]
    if top and f"{name}/" == top and member.isdir():
        return "."
    if top and name.startswith(top):
        name = name.removeprefix(top)
    elif top:
        _refuse("bad_path", f"The path {shown(name)} in the archive is outside {shown(top)}.")
    if name == MANIFEST_NAME or (name == "." and member.isdir()):
        return name
    code, problem = path_problem(f"{name}/x" if member.isdir() else name)
    if code:
        _refuse(code, f"The path {shown(name)} in the archive {problem}.")
    return name


def _check_file(
    member: tarfile.TarInfo,
    size: bytes,
    name: str,
    files: Mapping[str, bytes],
    limits: PackageSettings,
) -> None:
    if member.issparse() or member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        kind = tarfile.GNUTYPE_SPARSE if member.issparse() else member.type
        code, what = _KINDS.get(kind, ("odd_header", f"of the unknown kind {kind!a}"))
        _refuse(code, f"{name!a} in the archive is {what}; a package holds only plain files.")
    is_manifest = name == MANIFEST_NAME
    if name in files:
        code = "manifest_twice" if is_manifest else "duplicate_member"
        _refuse(code, f"The archive contains {name!r} twice.")
    # tarfile parses sizes by int(), which accepts signs, underscores and other scripts.
    stated = member.pax_headers.get("size", "0")
    if not _SIZE.fullmatch(size) or not re.fullmatch("[0-9]+", stated):
        _refuse("damaged", f"The size of {name!r} in the archive is not a valid tar number.")
    most = _MANIFEST_BYTES if is_manifest else limits.file_bytes
    if member.size > most:
        _refuse(
            "manifest_too_large" if is_manifest else "file_too_large",
            f"{name!r} in the archive has {member.size} bytes, more than the {most} allowed.",
            _RAISE,
        )


def _refuse(code: str, message: str, next_step: str = _REPACK) -> NoReturn:
    raise PackageError(code, message, next_step=next_step)
