"""Whatever differs from what was installed is found and named."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import json
import marshal
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from remit.packages import PackageError
from remit.packages.distribution import Distribution, repack_wheel
from tests.packages.distribution.placing import INFO, copy_project, editable, regular, row

_TARGET = "remit/ledger/client.py"
_EMPTY = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"


def test_what_was_installed_has_no_problems(
    placed: Distribution, from_source: Distribution
) -> None:
    assert placed.problems() == []
    assert not placed.editable
    top = placed.location
    assert top.joinpath("__pycache__").is_dir()  # compiled forms were looked at too
    modules = placed.modules()
    assert modules["remit"] == top / "__init__.py"
    assert modules["remit.ledger"] == top / "ledger" / "__init__.py"
    assert modules["remit.ledger.client"] == top / "ledger" / "client.py"
    assert set(modules.values()) == set(top.rglob("*.py"))
    assert from_source.editable
    assert from_source.problems() == []


def _edit(site: Path) -> None:
    path = site / _TARGET
    path.write_bytes(path.read_bytes().replace(b"import", b"Import", 1))


def _link_directory(site: Path) -> None:
    (site / "elsewhere").mkdir()
    (site / "remit" / "linked").symlink_to(site / "elsewhere")


def _pipe(site: Path) -> None:
    (site / _TARGET).unlink()
    os.mkfifo(site / _TARGET)


def _directory(site: Path) -> None:
    (site / _TARGET).unlink()
    (site / _TARGET).mkdir()


def _write(path: str, data: bytes = b"x = 1\n") -> Callable[[Path], None]:
    def write(site: Path) -> None:
        (site / path).parent.mkdir(exist_ok=True)
        (site / path).write_bytes(data)

    return write


def _record(change: Callable[[str], str]) -> Callable[[Path], None]:
    def write(site: Path) -> None:
        path = site / INFO / "RECORD"
        path.write_text(change(path.read_text()))

    return write


def _without(start: str) -> Callable[[str], str]:
    return lambda text: "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith(start)
    )


def _stating(*cells: str) -> Callable[[Path], None]:
    """RECORD has these cells for the file, instead of its hash and size."""
    return _record(lambda text: f"{_without(f'{_TARGET},')(text)}{','.join((_TARGET, *cells))}\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_edit, f"{_TARGET} has the hash "),
        (_write(_TARGET, b""), f"{_TARGET} has the hash "),
        (lambda site: (site / _TARGET).unlink(), f"{_TARGET} is missing"),
        (_pipe, f"{_TARGET} cannot be read"),
        (_directory, f"{_TARGET} is missing"),
        (_write("remit/extra.py"), "remit/extra.py exists, but RECORD does not name it"),
        (_write("remit/extra.so"), "remit/extra.so exists, but"),
        (_write("remit/extra.pyc"), "remit/extra.pyc exists, but"),
        (_write("remit/extra.pth"), "remit/extra.pth exists, but"),
        (_write("remit/new/deep.txt"), "remit/new/deep.txt exists, but"),
        (_write("remit/__pycache__/extra.py"), "remit/__pycache__/extra.py exists, but"),
        (_write(f"{INFO}/extra.txt"), f"{INFO}/extra.txt exists, but"),
        (_write(f"{INFO}/METADATA", b"Version: 9\n"), f"{INFO}/METADATA has the hash"),
        (_link_directory, "is a link to a directory"),
        (lambda site: (site / "remit-9.9.dist-info").mkdir(), "remit-9.9.dist-info is there"),
        (lambda site: (site / INFO / "RECORD").unlink(), "RECORD cannot be read"),
        (_record(lambda text: ""), "RECORD does not name remit/__init__.py"),
        (_record(lambda text: text + "one\n"), "it has 1 columns"),
        (_record(lambda text: text + row(_TARGET, b"")), "twice"),
        (_record(_without(f"{_TARGET},")), f"{_TARGET} exists, but RECORD does not name"),
        (_stating("", ""), f"{_TARGET} has no hash in RECORD"),
        (_stating("md5=1B2M2Y8AsgTpgAmY7PhCfg", ""), "RECORD says 'md5="),
        (_stating(f"{_EMPTY}=", ""), "RECORD says 'sha256="),
        (_stating("sha256=\u00e9", ""), "RECORD says 'sha256="),
        (_stating(_EMPTY, "0", "more"), "it has 4 columns"),
        (_record(lambda text: f"{text}remit/../../x,{_EMPTY},0\n"), "remit/../../x is missing"),
        (_record(lambda text: text.replace(",", ",,", 1)), "it has 4 columns"),
        (_write(f"{INFO}/RECORD", b"remit/a.py,\xff,0"), "RECORD cannot be read"),
        (_write(f"{INFO}/RECORD", b'"open'), "RECORD cannot be read"),
        (_record(_without(f"{INFO}/METADATA,")), f"RECORD does not name {INFO}/METADATA"),
        (lambda site: shutil.rmtree(site / INFO), "is not an installed distribution"),
        (lambda site: shutil.rmtree(site / "remit"), "remit/__init__.py is missing"),
    ],
)
def test_a_change_is_found(copied: Distribution, change: Callable[[Path], None], said: str) -> None:
    site = copied.location.parent
    change(site)
    problems = Distribution.at(site).problems()
    assert any(said in problem for problem in problems), problems


def test_a_size_that_is_wrong_is_found(copied: Distribution) -> None:
    site = copied.location.parent
    _, digest, size = row(_TARGET, (site / _TARGET).read_bytes()).strip().split(",")
    _stating(digest, f"{size}0")(site)
    (problem,) = copied.problems()
    assert problem == f"{_TARGET} has {size} bytes, RECORD says '{size}0'."


def _move_code(site: Path) -> None:
    (site / "remit").rename(site.parent / "remit")


def _move_code_and_its_hashes(site: Path) -> None:
    (site / "x.pth").write_text("..\n")
    _record(lambda text: f"{_without('remit/')(text)}x.pth,,\n")(site)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_edit, f"{_TARGET} has the hash"),
        (_move_code, f"{_TARGET} is missing"),
        (_move_code_and_its_hashes, "RECORD does not name remit/__init__.py"),
    ],
)
def test_who_says_that_a_regular_one_is_editable_is_not_believed(
    copied: Distribution, change: Callable[[Path], None], said: str
) -> None:
    site = copied.location.parent
    change(site)
    stated = {"url": "file:///nowhere", "dir_info": {"editable": True}}
    (site / INFO / "direct_url.json").write_text(json.dumps(stated))
    found = Distribution.at(site)
    assert not found.editable
    problems = " ".join(found.problems())
    assert said in problems
    assert "it is a regular one" in problems


def _cache(source: Path, level: str = "") -> Path:
    return Path(importlib.util.cache_from_source(str(source), optimization=level))


def _hostile(source: Path, level: str = "") -> Path:
    """A compiled form of other code that Python believes, by its time and size."""
    found = os.stat(source)
    code = compile("raise SystemExit('hostile')", str(source), "exec")
    head = importlib.util.MAGIC_NUMBER + bytes(4)
    head += (int(found.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
    head += found.st_size.to_bytes(4, "little")
    _cache(source, level).write_bytes(head + marshal.dumps(code))
    return _cache(source, level)


def test_a_compiled_form_of_other_code_is_found(copied: Distribution) -> None:
    for level in ("1", "2", ""):
        place = _hostile(copied.location / "kernel/errors.py", level)
        (problem,) = copied.problems()
        assert str(place) in problem
        assert "remit/kernel/errors.py" in problem
        if level:
            place.unlink()
    # Python would have run it.
    ran = subprocess.run(
        [sys.executable, "-c", "import remit.kernel.errors"],
        env={**os.environ, "PYTHONPATH": str(copied.location.parent)},
        capture_output=True,
        text=True,
    )
    assert "hostile" in ran.stderr


def test_compiled_forms_with_a_hash(copied: Distribution) -> None:
    source = copied.location / "kernel/errors.py"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), invalidation_mode=mode)
    (problem,) = copied.problems()
    assert "without a look at remit/kernel/errors.py" in problem
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    py_compile.compile(str(source), invalidation_mode=mode)
    assert copied.problems() == []
    data = _cache(source).read_bytes()
    _cache(source).write_bytes(data[:16] + marshal.dumps(compile("1", "x", "exec")))
    assert "holds other code" in copied.problems()[0]


def test_only_compiled_forms_that_python_believes_count(copied: Distribution) -> None:
    source = copied.location / "kernel/errors.py"
    data = _hostile(source).read_bytes()
    for place, change in ((0, b"\0\0\0\0"), (4, b"\4\0\0\0"), (8, b"\0\0\0\0"), (12, b"\0\0\0\0")):
        _cache(source).write_bytes(data[:place] + change + data[place + 4 :])
        assert copied.problems() == []
    _cache(source).write_bytes(data[:15])
    assert copied.problems() == []
    _cache(source).write_bytes(data[:16] + b"\xff")  # believed, and garbage
    assert "holds other code" in copied.problems()[0]


_SHOW = """
from remit.packages.distribution import Distribution
found = Distribution.current()
print(found.editable, found.location, found.info, found.running, sep="|")
print(*found.problems(), sep="\\n")
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Remit needs, and no Remit."""
    top = tmp_path_factory.mktemp("libraries")
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if "remit" not in one.name:
            (top / one.name).symlink_to(one)
    return top


def _run(*paths: Path, first: str = "") -> list[str]:
    """What a process with that path says of its own distribution."""
    ran = subprocess.run(
        [sys.executable, "-S", "-c", first + _SHOW],
        env={"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines()


def test_the_running_one_is_found_from_its_own_code(
    placed: Distribution, from_source: Distribution, libraries: Path
) -> None:
    head, *problems = _run(placed.location.parent, libraries)
    assert head.split("|") == ["False", str(placed.location), str(placed.info), "True"]
    assert not any(problems)
    assert from_source.info is not None
    head, *problems = _run(from_source.location.parent, from_source.info.parent, libraries)
    assert head.split("|") == ["True", str(from_source.location), str(from_source.info), "True"]
    assert not any(problems)


def test_code_from_elsewhere_is_found(
    placed: Distribution, project: Path, libraries: Path, tmp_path: Path
) -> None:
    _, *problems = _run(project / "src", placed.location.parent, libraries)
    assert "is not an installed distribution" in problems[0]
    (tmp_path / "other.py").write_text("")
    first = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("remit.other", {str(tmp_path / "other.py")!r})
sys.modules["remit.other"] = importlib.util.module_from_spec(spec)
"""
    _, *problems = _run(placed.location.parent, libraries, first=first)
    assert any("remit.other was loaded from" in problem for problem in problems)


# -- The wheel made of an installation -----------------------------------------------------------


def test_an_editable_and_a_regular_installation_give_the_same_bytes(
    from_source: Distribution, placed: Distribution
) -> None:
    assert not placed.editable
    assert repack_wheel(from_source) == repack_wheel(placed)


def test_it_is_written_in_one_way(placed: Distribution) -> None:
    name, data = repack_wheel(placed)
    assert name == f"remit-{placed.version}-py3-none-any.whl"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        members = archive.infolist()
    names = [member.filename for member in members]
    assert {member.compress_type for member in members} == {zipfile.ZIP_STORED}
    assert {member.date_time for member in members} == {(1980, 1, 1, 0, 0, 0)}
    assert {member.external_attr >> 16 for member in members} == {0o100644}
    assert names[-1] == f"{INFO}/RECORD"
    assert [one for one in names if one.startswith("remit-")] == [
        f"{INFO}/METADATA",
        f"{INFO}/WHEEL",
        f"{INFO}/entry_points.txt",
        f"{INFO}/licenses/LICENSE",
        f"{INFO}/RECORD",
    ]
    assert not [one for one in names if one.endswith(".pyc")]


def test_dirt_beside_the_source_is_left_out(own_source: Distribution) -> None:
    before = repack_wheel(own_source)
    (own_source.location / ".errors.py.swp").write_bytes(b"dirt")
    (own_source.location / "__pycache__").mkdir(exist_ok=True)
    (own_source.location / "__pycache__" / "errors.cpython-311.pyc").write_bytes(b"dirt")
    assert repack_wheel(own_source) == before
    (own_source.location / "kernel/errors.py").write_text("changed = True\n")
    assert repack_wheel(own_source) != before


def test_nothing_is_made_of_a_changed_installation(copied: Distribution) -> None:
    (copied.location / "kernel/errors.py").write_bytes(b"")
    with pytest.raises(PackageError, match=r"errors\.py has the hash") as caught:
        repack_wheel(copied)
    assert caught.value.next_step


def test_older_metadata_is_refused(own_source: Distribution) -> None:
    version = own_source.location / "_version.py"
    version.write_text(version.read_text().replace(own_source.version, "99.0.0"))
    with pytest.raises(PackageError, match=r"has version '99\.0\.0'"):
        repack_wheel(own_source)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"aiohttp>=3.11"', '"aiohttp>=3.12"', "dependencies"),
        ("parquet = [", "another = [", "extras"),
    ],
)
def test_older_requirements_are_refused(
    own_source: Distribution, tmp_path: Path, old: str, new: str, what: str
) -> None:
    path = tmp_path / "project" / "pyproject.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(PackageError, match=f"names other {what}") as caught:
        repack_wheel(own_source)
    assert "pip install" in caught.value.next_step


def test_what_is_for_one_system_is_refused(tmp_path: Path, small_project: Path) -> None:
    made = editable(tmp_path, small_project)
    assert made.info is not None
    for name in ("WHEEL", "RECORD"):
        path = made.info / name
        text = path.read_text().replace("py3-none-any", "cp311-cp311-linux_x86_64")
        if name == "RECORD":
            text = "".join(one for one in text.splitlines(True) if "/WHEEL," not in one)
            text += f"{INFO}/WHEEL,sha256={_digest(made.info / 'WHEEL')},\n"
        path.write_text(text)
    with pytest.raises(PackageError, match="py3-none-any"):
        repack_wheel(made)


def _digest(path: Path) -> str:
    raw = hashlib.sha256(path.read_bytes()).digest()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def test_the_build_backend_makes_a_wheel_of_the_same_files(tmp_path: Path) -> None:
    """Its own wheel differs in how it is packed, never in what is in it."""
    pytest.importorskip("hatchling")
    project = copy_project(tmp_path / "project")
    subprocess.run(
        [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet",
         "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(tmp_path),
         str(project)],
        check=True,
    )  # fmt: skip
    built = next(tmp_path.glob("*.whl"))
    (tmp_path / "scratch").mkdir()
    wheel = (built.name, built.read_bytes())
    placed = regular(tmp_path / "site", wheel, tmp_path / "scratch", "--no-compile")
    assert placed.problems() == []
    with (
        zipfile.ZipFile(built) as theirs,
        zipfile.ZipFile(io.BytesIO(repack_wheel(placed)[1])) as ours,
    ):
        assert set(theirs.namelist()) == set(ours.namelist())
        for folder in ("deploy", "examples"):
            for file in filter(Path.is_file, (project / folder).rglob("*")):
                name = f"remit/assets/{folder}/{file.relative_to(project / folder)}"
                assert theirs.read(name) == file.read_bytes()
        for name in ours.namelist():
            if not name.endswith("/RECORD"):
                assert ours.read(name) == theirs.read(name)
