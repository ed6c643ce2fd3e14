"""Whatever differs from what was installed is found and named."""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from remit.packages.distribution import Distribution
from tests.packages.distribution.placing import INFO, row

_TARGET = "remit/ledger/client.py"


def test_what_pip_placed_is_whole(placed: Distribution) -> None:
    assert placed.problems() == []
    assert not placed.editable
    assert placed.location.joinpath("__pycache__").is_dir()  # compiled forms were looked at too


def test_an_editable_installation_is_known_as_one(from_source: Distribution) -> None:
    assert from_source.editable
    assert from_source.problems() == []


def test_modules_are_named_as_they_are_imported(placed: Distribution) -> None:
    modules = placed.modules()
    top = placed.location
    assert modules["remit"] == top / "__init__.py"
    assert modules["remit.ledger"] == top / "ledger" / "__init__.py"
    assert modules["remit.ledger.client"] == top / "ledger" / "client.py"
    assert set(modules.values()) >= set(top.rglob("*.py"))


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


def _unhashed(text: str) -> str:
    rest = _without(f"{_TARGET},")(text)
    return f"{rest}{_TARGET},,\n"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_edit, f"{_TARGET} has the SHA-256 "),
        (_write(_TARGET, b""), f"{_TARGET} has the SHA-256 "),
        (lambda site: (site / _TARGET).unlink(), f"{_TARGET} is missing"),
        (_pipe, f"{_TARGET} cannot be read"),
        (_directory, f"{_TARGET} cannot be read"),
        (_write("remit/extra.py"), "remit/extra.py is there, but RECORD does not know it"),
        (_write("remit/extra.so"), "remit/extra.so is there"),
        (_write("remit/extra.pyc"), "remit/extra.pyc is there"),
        (_write("remit/extra.pth"), "remit/extra.pth is there"),
        (_write("remit/new/deep.txt"), "remit/new/deep.txt is there"),
        (_write("remit/__pycache__/extra.py"), "remit/__pycache__/extra.py is there"),
        (_write(f"{INFO}/extra.txt"), f"{INFO}/extra.txt is there"),
        (_write(f"{INFO}/METADATA", b"Version: 9\n"), f"{INFO}/METADATA has the SHA-256"),
        (_link_directory, "is a link to a directory"),
        (lambda site: (site / "remit-9.9.dist-info").mkdir(), "remit-9.9.dist-info is there"),
        (lambda site: (site / INFO / "RECORD").unlink(), "RECORD cannot be read"),
        (_record(lambda text: ""), "RECORD does not name remit/__init__.py"),
        (_record(lambda text: text + "one\n"), "it has 1 columns"),
        (_record(lambda text: text + row(_TARGET, b"")), "twice"),
        (_record(_without(f"{_TARGET},")), f"{_TARGET} is there, but RECORD does not know"),
        (_record(_unhashed), f"RECORD has no hash of {_TARGET}"),
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


def _says_editable(site: Path) -> None:
    told = {"url": "file:///nowhere", "dir_info": {"editable": True}}
    (site / INFO / "direct_url.json").write_text(json.dumps(told))


def test_who_says_that_a_regular_one_is_editable_is_not_believed(copied: Distribution) -> None:
    site = copied.location.parent
    _edit(site)
    _says_editable(site)
    found = Distribution.at(site)
    assert not found.editable
    problems = " ".join(found.problems())
    assert "it is a regular one" in problems
    assert f"{_TARGET} has the SHA-256 " in problems


def test_a_regular_one_whose_code_was_moved_away_is_not_editable(copied: Distribution) -> None:
    site = copied.location.parent
    _says_editable(site)
    (site / "remit").rename(site.parent / "remit")
    found = Distribution.at(site)
    assert not found.editable
    assert any(f"{_TARGET} is missing" in problem for problem in found.problems())


def test_a_regular_one_with_code_beside_and_no_hashes_is_not_editable(copied: Distribution) -> None:
    site = copied.location.parent
    _says_editable(site)
    (site / "x.pth").write_text("..\n")
    record = site / INFO / "RECORD"
    rows = record.read_text().splitlines(keepends=True)
    record.write_text("".join(one for one in rows if not one.startswith("remit/")) + "x.pth,,\n")
    found = Distribution.at(site)
    assert not found.editable
    assert any("RECORD does not name remit/__init__.py" in one for one in found.problems())


def test_both_hashes_of_a_changed_file_are_named(copied: Distribution) -> None:
    _edit(copied.location.parent)
    (problem,) = copied.problems()
    words = [word.strip(".,") for word in problem.split()]
    assert len({word for word in words if len(word) == 64}) == 2


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


@pytest.mark.parametrize("level", ["", "1", "2"])
def test_a_compiled_form_of_other_code_is_found(copied: Distribution, level: str) -> None:
    place = _hostile(copied.location / "kernel/errors.py", level)
    (problem,) = copied.problems()
    assert str(place) in problem
    assert "remit/kernel/errors.py" in problem


def test_python_would_have_run_it(copied: Distribution) -> None:
    _hostile(copied.location / "kernel/errors.py")
    ran = subprocess.run(
        [sys.executable, "-c", "import remit.kernel.errors"],
        env={**os.environ, "PYTHONPATH": str(copied.location.parent)},
        capture_output=True,
        text=True,
    )
    assert "hostile" in ran.stderr


def test_an_unchecked_compiled_form_is_a_problem(copied: Distribution) -> None:
    source = copied.location / "kernel/errors.py"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), invalidation_mode=mode)
    (problem,) = copied.problems()
    assert "without a look at remit/kernel/errors.py" in problem


def test_a_checked_compiled_form_of_other_code_is_found(copied: Distribution) -> None:
    source = copied.location / "kernel/errors.py"
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    py_compile.compile(str(source), invalidation_mode=mode)
    assert copied.problems() == []
    data = _cache(source).read_bytes()
    _cache(source).write_bytes(data[:16] + marshal.dumps(compile("1", "x", "exec")))
    assert "holds other code" in copied.problems()[0]


def test_compiled_forms_that_python_does_not_believe_are_nobodys_business(
    copied: Distribution,
) -> None:
    source = copied.location / "kernel/errors.py"
    data = bytearray(_hostile(source).read_bytes())
    for place, change in ((0, b"\0\0\0\0"), (4, b"\4\0\0\0"), (8, b"\0\0\0\0"), (12, b"\0\0\0\0")):
        _cache(source).write_bytes(data[:place] + change + data[place + 4 :])
        assert copied.problems() == []
    _cache(source).write_bytes(data[:15])
    assert copied.problems() == []


def test_a_believed_compiled_form_that_is_garbage_is_found(copied: Distribution) -> None:
    place = _hostile(copied.location / "kernel/errors.py")
    place.write_bytes(place.read_bytes()[:16] + b"\xff")
    assert "holds other code" in copied.problems()[0]


_LIBRARIES: Path
_TELL = """
from remit.packages.distribution import Distribution
found = Distribution.current()
print(found.version, found.editable, found.location, found.info, found.running, sep="|")
print(*found.problems(), sep="\\n")
"""


@pytest.fixture(scope="module", autouse=True)
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Remit needs, and no Remit."""
    global _LIBRARIES
    _LIBRARIES = tmp_path_factory.mktemp("libraries")
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if "remit" not in one.name:
            (_LIBRARIES / one.name).symlink_to(one)
    return _LIBRARIES


def _told(*paths: Path) -> list[str]:
    told = subprocess.run(
        [sys.executable, "-S", "-c", _TELL],
        env={
            "PYTHONPATH": os.pathsep.join(map(str, (*paths, _LIBRARIES))),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.splitlines()


def test_the_running_one_is_found_from_its_own_code(placed: Distribution) -> None:
    head, *problems = _told(placed.location.parent)
    assert head.split("|")[1:] == ["False", str(placed.location), str(placed.info), "True"]
    assert not any(problems)


def test_a_running_editable_one_is_found(from_source: Distribution) -> None:
    assert from_source.info is not None
    head, *problems = _told(from_source.location.parent, from_source.info.parent)
    expected = ["True", str(from_source.location), str(from_source.info), "True"]
    assert head.split("|")[1:] == expected
    assert not any(problems)


def test_code_that_shadows_the_installed_one_does_not_pass_for_it(
    placed: Distribution, project: Path
) -> None:
    _, *problems = _told(project / "src", placed.location.parent)
    assert "is not an installed distribution" in problems[0]


def test_a_module_from_elsewhere_is_found(placed: Distribution, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("")
    script = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("remit.other", {str(tmp_path / "other.py")!r})
sys.modules["remit.other"] = importlib.util.module_from_spec(spec)
{_TELL}"""
    told = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={"PYTHONPATH": os.pathsep.join([str(placed.location.parent), str(_LIBRARIES)])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "remit.other was loaded from" in told.stdout
