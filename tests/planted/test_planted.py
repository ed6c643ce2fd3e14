"""Tests that cannot fail prove nothing: each planted fault makes the test that it names fail.

A patch beside this file is one fault. Its first line states the fault, `Found by:` the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from remit.packages.distribution import Distribution
from tests.support.soak import sample, soak_only

_HERE = Path(__file__).parent
_TREE = _HERE.parents[1]
_FAULTS = sorted(_HERE.glob("*.patch"))
_TESTS_FAILED = 1  # pytest's exit code; every other one says that the tests did not run


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the product, which is an editable installation of its own."""
    made = tmp_path_factory.mktemp("planted")
    shutil.copytree(_TREE / "src", made / "src")
    installed = Distribution.current()
    assert installed.info is not None
    shutil.copytree(installed.info, info := made / "installed" / installed.info.name)
    origin = {"url": made.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(origin))
    return made


def run(tests: str, copy: Path) -> subprocess.CompletedProcess[str]:
    """Run tests against the copy, until the first that fails."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0",
         f"--basetemp={copy / 'tmp'}", *tests.split()],
        cwd=_TREE, env=os.environ | {"PYTHONPATH": f"{copy}/src:{copy}/installed"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def finders(fault: Path) -> str:
    """Return the tests that a patch names."""
    (found_by,) = [line.removeprefix("Found by: ") for line in fault.read_text().splitlines()
                   if line.startswith("Found by: ")]  # fmt: skip
    return found_by


def test_every_fault_applies_and_names_tests_that_exist() -> None:
    for fault in _FAULTS:
        subprocess.run(["git", "apply", "--check", str(fault)], cwd=_TREE, check=True)
        for test in finders(fault).split():
            file, _, name = test.partition("::")
            assert f"def {name}" in (_TREE / file).read_text(), fault.stem


@pytest.mark.soak
@pytest.mark.parametrize("fault", sample(_FAULTS, 2), ids=lambda fault: fault.stem)
def test_a_planted_fault_is_found(fault: Path, copy: Path) -> None:
    apply = ["git", "apply", "--unsafe-paths", "-p1", f"--directory={copy}", str(fault)]
    subprocess.run(apply, cwd=copy, check=True, capture_output=True)
    try:
        done = run(finders(fault), copy)
    finally:
        subprocess.run([*apply, "--reverse"], cwd=copy, check=True)
    assert done.returncode == _TESTS_FAILED, done.stdout + done.stderr


@pytest.mark.soak
@soak_only
@pytest.mark.parametrize("tests", sorted({*map(finders, _FAULTS)}))
def test_without_a_fault_the_same_tests_pass(tests: str, copy: Path) -> None:
    done = run(tests, copy)
    assert done.returncode == 0, done.stdout + done.stderr
