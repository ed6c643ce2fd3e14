"""What the archive of a package may be, and how each other one is answered."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from remit.packages import (
    Archive,
    ArchiveError,
    ManifestError,
    PackageError,
    pack,
    path_problem,
    read_archive,
)
from tests.packages.making import (
    FILES,
    LIMITS,
    archive_of,
    directory_of,
    encoded,
    manifest_of,
    member,
    members_of,
    sha256,
    tar_of,
)

FIRST = "HO1/contracts/PRC-EXAMPLE-001.json"
MEMBERS = members_of()
RIGHT = archive_of(MEMBERS)
TAR = tar_of(MEMBERS)


def compressed(tar: bytes, **more: int) -> bytes:
    return gzip.compress(tar, mtime=0, **more)


def with_member(name: str, **changed: object) -> bytes:
    """The right archive with one more member at its end."""
    data = changed.pop("data", b"")
    assert isinstance(data, bytes)
    return archive_of([*MEMBERS, member(name, data, **changed)])


def altered(offset: int, to: bytes) -> bytes:
    """The right archive with bytes of its second header changed, its checksum made right."""
    start = 512 + len(MEMBERS[0][1]) + -len(MEMBERS[0][1]) % 512
    header = bytearray(TAR[start : start + 512])
    header[offset : offset + len(to)] = to
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return compressed(TAR[:start] + header + TAR[start + 512 :])


def without(name: str) -> bytes:
    return archive_of([one for one in MEMBERS if one[0].name != name])


def followed_by(one: tuple[tarfile.TarInfo, bytes], layout: int) -> bytes:
    return compressed(TAR[:-1024] + tar_of([one], layout))


def pax(headers: dict[str, str]) -> bytes:
    info, data = member("HO1/a", b"x")
    info.pax_headers = headers
    return followed_by((info, data), tarfile.PAX_FORMAT)


def with_global_header() -> bytes:
    """Every member after it would get a copy of all its keys."""
    head = tarfile.TarInfo.create_pax_global_header({f"k{n}": "v" for n in range(10_000)})
    return compressed(head + TAR)


def with_optional_name() -> bytes:
    stream = io.BytesIO()
    with gzip.GzipFile("evil.tar", "wb", fileobj=stream, mtime=0) as zipped:
        zipped.write(TAR)
    return stream.getvalue()


def many_members() -> bytes:
    """A million tiny members behind a right manifest."""
    one = tar_of([member("HO1/x", b"")])[:512]
    squeeze = zlib.compressobj(wbits=31)
    head = squeeze.compress(TAR[:-1024]) + squeeze.flush(zlib.Z_FULL_FLUSH)
    many = squeeze.compress(one * 20_000) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return head + many * 50  # whole blocks, each independent of what is before it


def bomb(size: int) -> bytes:
    """A manifest, and a declared file of that many zeros."""
    manifest = encoded(manifest_of({"HO1/zeros": b""}))
    info = tarfile.TarInfo("HO1/zeros")
    info.size = size
    head = tar_of([member("manifest.json", manifest)])[:-1024]
    return compressed(head + tar_of([(info, b"")])[:512] + bytes(size))


def padded() -> bytes:
    """Something behind the end of a file, where its last block is filled up."""
    end = TAR.index(FILES[FIRST]) + len(FILES[FIRST])
    return compressed(TAR[:end] + b"hidden" + TAR[end + 6 :])


# fmt: off
# name: (archive, code, a word of the message)
HOSTILE: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "control character": (lambda: with_member("HO1/\x1b[2J"), "bad_path", "control"),
    "block device": (lambda: with_member("HO1/a", type=tarfile.BLKTYPE), "device", "block"),
    "pipe": (lambda: with_member("HO1/a", type=tarfile.FIFOTYPE), "fifo", "pipe"),
    "sparse": (lambda: with_member("HO1/a", type=tarfile.GNUTYPE_SPARSE), "sparse", "sparse"),
    "global pax header": (lambda: with_global_header(), "odd_header", "global pax"),
    "twin by case": (lambda: with_member(FIRST.lower().replace("ho1", "HO1")), "twin_member", "on"),
    "manifest twice": (lambda: archive_of([MEMBERS[0], *MEMBERS]), "manifest_twice", "twice"),
    "nothing in it": (lambda: archive_of([]), "manifest_missing", "no manifest.json"),
    "large file": (
        lambda: archive_of(members_of({"HO1/a": os.urandom(1_000_001)})), "file_too_large",
        "1000001"),
    "bomb of several files": (
        lambda: archive_of(members_of({f"HO1/{n}": os.urandom(300) * 3000 for n in range(6)})),
        "unpacked_too_large", "4000000"),
    "too large": (lambda: RIGHT + os.urandom(3_000_000), "archive_too_large", "3000000"),
    "bytes behind": (lambda: RIGHT + b"\0", "trailing_data", "1 bytes"),
    "another gzip behind": (lambda: RIGHT + RIGHT, "several_members", "several gzip"),
    "absolute": (lambda: with_member("/etc/passwd"), "absolute_path", "is absolute"),
    "manifest as a link": (
        lambda: archive_of([member("manifest.json", type=tarfile.SYMTYPE, linkname="x")]), "link",
        "symbolic"),
    "without the last byte": (lambda: RIGHT[:-1], "truncated", "ends"),
    "wrong sum": (lambda: RIGHT[:-8] + bytes(4) + RIGHT[-4:], "damaged", "damaged"),
    "zip": (lambda: b"PK\x03\x04" + bytes(100), "not_gzip", "gzip"),
    "empty": (lambda: b"", "not_gzip", "gzip"),
    "not UTF-8": (lambda: with_member("HO1/\udcff"), "bad_path", "control"),
    "pax path": (lambda: pax({"path": "../x"}), "parent_path", "'..'"),
    "pax size": (lambda: pax({"size": "5000"}), "damaged", "tar data"),
    "pax sparse": (
        lambda: pax({"GNU.sparse.map": "0,1", "GNU.sparse.size": "9"}), "sparse", "sparse"),
    "global pax that renames": (
        lambda: archive_of([member("pax", b"18 path=HO1/other\n", type=b"g"), *MEMBERS]),
        "duplicate_member", "HO1/other"),
    "GNU long name": (
        lambda: followed_by(member("HO1/" + "a" * 200), tarfile.GNU_FORMAT), "path_too_long",
        "192 bytes"),
    "size below zero": (lambda: altered(124, b"-0000000001\0"), "damaged", "valid tar number"),
    "no end": (lambda: compressed(TAR[:-1024]), "truncated", "without two blocks"),
    "manifest missing": (lambda: archive_of(MEMBERS[1:]), "manifest_missing", "no manifest.json"),
    "manifest too large": (
        lambda: archive_of([member("manifest.json", os.urandom(100_001))]), "manifest_too_large",
        "100000"),
    "too many files": (
        lambda: archive_of(members_of({f"HO1/{n}": b"" for n in range(100)})), "too_many_files",
        "100 files"),
    "a million members": (many_members, "unpacked_too_large", "4000000"),
    "bomb behind": (lambda: compressed(TAR + bytes(1 << 25)), "unpacked_too_large", "4000000"),
    "zeros and a header": (lambda: compressed(TAR[:-512] + TAR[:512]), "damaged", "follows"),
    "text in a gzip": (lambda: compressed(b"hello" * 200), "damaged", "tar data"),
}
# fmt: on


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.packages.archive._MANIFEST_BYTES", 100_000)
    make, code, word = HOSTILE[name]
    data = make()
    tracemalloc.start()
    try:
        with pytest.raises(PackageError) as caught:
            read_archive(io.BytesIO(data), LIMITS, expected_id="PKG-EXAMPLE-001")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    error = caught.value
    assert isinstance(error, ArchiveError | ManifestError)
    assert error.code == code, str(error)
    assert word in str(error)
    assert error.next_step
    assert str(error).isprintable()
    assert peak < 3 * (LIMITS.compressed_bytes + LIMITS.unpacked_bytes)


# fmt: off
SAFE: dict[str, Callable[[], bytes]] = {
    "compressed": lambda: RIGHT,
    "dots": lambda: archive_of([member("./", type=tarfile.DIRTYPE), *dotted()]),
    "directories": lambda: archive_of(
        [member("HO1", type=tarfile.DIRTYPE), *MEMBERS, member("HOT/x/", type=tarfile.DIRTYPE)]
    ),
    "any order": lambda: archive_of(MEMBERS[::-1]),
    "GNU format": lambda: archive_of(MEMBERS, tarfile.GNU_FORMAT),
    "pax headers": lambda: archive_of(
        [member("pax", b"18 comment=abcdef\n", type=b"g"), *timed()], tarfile.PAX_FORMAT
    ),
    "time": lambda: altered(136, b"14000000000\0"),
    "mode": lambda: altered(100, b"0004755\0"),
    "behind the name": lambda: altered(99, b"x"),
    "size in base 256": lambda: altered(124, b"\x80" + bytes(10) + b"\x23"),
    "padding": padded,
    "filled up": lambda: compressed(TAR + bytes(9216)),
    "name in the gzip header": with_optional_name,
}
# fmt: on


def dotted() -> list[tuple[tarfile.TarInfo, bytes]]:
    return [member(f"./{info.name}", data) for info, data in MEMBERS]


def timed() -> list[tuple[tarfile.TarInfo, bytes]]:
    return [member(info.name, data, mtime=1.5, uid=1 << 30) for info, data in MEMBERS]


@pytest.mark.parametrize("name", SAFE)
def test_every_safe_archive_is_read_and_has_one_digest(name: str) -> None:
    archive = read_archive(io.BytesIO(SAFE[name]()), LIMITS, expected_id="PKG-EXAMPLE-001")
    assert (archive.files, archive.manifest_json) == (FILES, MEMBERS[0][1])
    assert archive.data == PACKED
    assert archive.digest == sha256(PACKED)


@pytest.mark.skipif(shutil.which("tar") is None, reason="needs tar")
@pytest.mark.parametrize("what", [".", "manifest.json HO1 HOT", "-C .. package", "-C .. ./package"])
def test_what_tar_makes_of_a_directory_is_a_package(what: str, tmp_path: Path) -> None:
    directory = directory_of(tmp_path / "package")
    subprocess.run(["tar", "czf", "../package.tgz", *what.split()], cwd=directory, check=True)
    archive = read_archive(io.BytesIO((tmp_path / "package.tgz").read_bytes()), LIMITS)
    assert archive == Archive.from_directory(directory)


def test_what_is_outside_the_folder_that_a_package_is_in_is_refused() -> None:
    inside = [member(f"mine/{info.name}", data) for info, data in MEMBERS]
    assert read(archive_of(inside)) == FILES
    for stray in ("HOT/stray", "other/HOT/stray", "manifest.json", "mine"):
        with pytest.raises(ArchiveError) as caught:
            read(archive_of([*inside, member(stray, b"{}")]))
        assert caught.value.code == "bad_path"


def read(data: bytes) -> dict[str, bytes]:
    return dict(read_archive(io.BytesIO(data), LIMITS).files)


def test_the_bytes_are_known(tmp_path: Path) -> None:
    """Not only the same twice: the same as ever."""
    files = {"HO1/ä": b"x" * 70_000}
    data = pack(directory_of(tmp_path, files))
    tar = tar_of(members_of(files))
    blocks = [tar[start : start + 65535] for start in range(0, len(tar), 65535)]
    expected = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    for block in blocks:
        size = len(block).to_bytes(2, "little")
        expected += bytes([block is blocks[-1]]) + size + bytes(255 - byte for byte in size) + block
    expected += zlib.crc32(tar).to_bytes(4, "little") + len(tar).to_bytes(4, "little")
    assert data == expected


@pytest.mark.skipif(shutil.which("tar") is None, reason="needs tar")
def test_tar_writes_the_same(tmp_path: Path) -> None:
    """The command in docs/package-format.md."""
    version = subprocess.run(["tar", "--version"], capture_output=True, text=True, check=True)
    if "GNU tar" not in version.stdout:
        pytest.skip("the command is for GNU tar")
    page = (Path(__file__).parents[2] / "docs/package-format.md").read_text()
    command = page.split("```sh\n")[1].split("```")[0]
    lengths = [
        (64, 31), (64, 32), (60, 60), (64, 22, 64), (64, 64, 20, 36), (64, 64, 21, 35),
        (64, 64, 22, 34), (60, 60, 25, 39),
    ]  # fmt: skip
    long = {
        f"HO2/{number}" + "/".join("x" * length for length in parts): b"long"
        for number, parts in enumerate([(one - 1, *more) for one, *more in lengths])
    }
    assert {len(path) for path in long} >= {100, 101, 191}
    directory = directory_of(tmp_path / "package", {**FILES, **long, "HO1/Z ä日": b"x"})
    subprocess.run(["sh", "-ec", command], cwd=directory, check=True, timeout=60)
    data = (tmp_path / "package.tar.gz").read_bytes()
    assert gzip.decompress(data) == gzip.decompress(pack(directory))
    assert read_archive(io.BytesIO(data), LIMITS).files == {**FILES, **long, "HO1/Z ä日": b"x"}


FORMAT = ("archive", "authoring", "manifest", "paths")


def test_the_page_names_the_codes_that_there_are() -> None:
    top = Path(__file__).parents[2]
    page = (top / "docs/package-format.md").read_text().split("## What is refused")[1]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    source = "".join((top / f"src/remit/packages/{name}.py").read_text() for name in FORMAT)
    used = set(re.findall(r"(?:_refuse|PackageError|_fail)\(\s*\"(\w+)\"", source))
    used |= set(re.findall(r"return \"(\w+)\", f?\"", source))
    used |= set(re.findall(r"TYPE\w*: \(\"(\w+)\", ", source))
    assert {"link", "fifo", "bad_path", "ratio", "manifest_text"} < used
    # Of these the call chooses one.
    assert named == used | {
        "not_a_file", "manifest_missing", "unreadable", "manifest_too_large", "file_too_large",
        "manifest_twice", "duplicate_member", "twin_member", "undeclared_file", "missing_asset",
        "wrong_hash", "odd_header",
    }  # fmt: skip


# fmt: off
WRONG_DIRECTORIES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "link": (lambda top: ((top / FIRST).unlink(), (top / FIRST).symlink_to("/etc/passwd")), "link",
        FIRST),
    "pipe": (lambda top: ((top / FIRST).unlink(), os.mkfifo(top / FIRST)), "not_a_file", FIRST),
    "no manifest": (lambda top: (top / "manifest.json").unlink(), "manifest_missing", "manifest"),
    "no directory": (shutil.rmtree, "manifest_missing", "manifest.json"),
}
# fmt: on


@pytest.mark.parametrize("name", WRONG_DIRECTORIES)
def test_a_directory_that_is_not_as_declared_is_not_packed(name: str, tmp_path: Path) -> None:
    harm, code, word = WRONG_DIRECTORIES[name]
    directory = directory_of(tmp_path / "package")
    harm(directory)
    with pytest.raises(PackageError) as caught:
        pack(directory)
    assert caught.value.code == code
    assert word in str(caught.value)


PARTS = st.text("abAB09-_é日 .", min_size=1, max_size=20)
PATHS = st.builds(
    lambda tier, parts: "/".join([tier, *parts]),
    st.sampled_from(["HOT", "HO2", "HO1"]),
    st.lists(PARTS, min_size=1, max_size=4),
).filter(lambda path: not path_problem(path)[0])


@st.composite
def contents(draw: st.DrawFn) -> dict[str, bytes]:
    """Files that can stand side by side in any file system."""
    files: dict[str, bytes] = {}
    taken: set[str] = set()
    for path in draw(st.lists(PATHS, max_size=6)):
        parts = path.casefold().split("/")
        own = {"/".join(parts[:count]) for count in range(2, len(parts) + 1)}
        if not own & taken:
            files[path] = draw(st.binary(max_size=2000))
            taken |= own
    return files


@settings(max_examples=30, deadline=None)
@given(contents(), st.randoms(use_true_random=False))
def test_packing_twice_gives_the_same_bytes(files: dict[str, bytes], random: object) -> None:
    manifest = encoded(manifest_of(files))
    order = sorted(files)
    random.shuffle(order)  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as top:
        first = directory_of(Path(top) / "a", files, manifest)
        before = os.umask(0o077)
        try:
            second = directory_of(Path(top) / "b", {name: files[name] for name in order}, manifest)
        finally:
            os.umask(before)
        for name in order:
            os.utime(second / name, (1, 1_000_000_000))
            (second / name).chmod(0o755)
        (second / "HO2/empty").mkdir(parents=True)
        assert pack(first) == pack(second)


@pytest.mark.parametrize("own", [True, False])
def test_every_single_flip_is_refused_or_changes_nothing(own: bool) -> None:
    right = PACKED if own else RIGHT
    unnoticed = set()
    for place in range(len(right)):
        data = bytearray(right)
        data[place] ^= 1 << place % 8
        try:
            archive = read_archive(io.BytesIO(data), LIMITS)
        except PackageError:
            continue
        unnoticed.add(place)
        assert (archive.files, archive.manifest_json) == (FILES, MEMBERS[0][1])
    # Time, level and system in the head of gzip, among others.
    assert set(range(4, 10)) <= unnoticed


def test_each_limit_holds_to_the_byte() -> None:
    """At the limit it is read, one below it is not."""
    most = {
        "compressed_bytes": len(RIGHT),
        "unpacked_bytes": len(TAR),
        "ratio": -(-len(TAR) // len(RIGHT)),
        "files": len(MEMBERS),
        "file_bytes": max(map(len, FILES.values())),
    }
    exact = LIMITS.model_copy(update=most)
    assert read_archive(io.BytesIO(RIGHT), exact).files == FILES
    for name, value in most.items():
        with pytest.raises(ArchiveError):
            read_archive(io.BytesIO(RIGHT), exact.model_copy(update={name: value - 1}))


def _packed() -> bytes:
    with tempfile.TemporaryDirectory() as top:
        return pack(directory_of(Path(top)))


PACKED = _packed()
