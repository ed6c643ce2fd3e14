"""Without the distributions under ``extras/`` all else works, and what needs one names it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from remit.kernel.extensions import INDEX, MissingDistributionError, load_extension

_TREE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes that find Remit and what it needs, and no distribution more."""
    libraries = tmp_path_factory.mktemp("libraries")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("remit_", "_remit_")):
            (libraries / path.name).symlink_to(path)
    return os.environ | {"PYTHONPATH": f"{_TREE / 'src'}:{libraries}"}


def run(core: dict[str, str], *words: object) -> subprocess.CompletedProcess[str]:
    # -S: without site-packages, so that only PYTHONPATH counts.
    return subprocess.run(
        [sys.executable, "-S", *map(str, words)],
        env=core, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def root(core: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("core") / "root"
    done = run(core, "-m", "remit", "init", made)
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.parametrize(
    "words",
    [
        ("index", "refresh", "--json"),
        ("upgrade", "PKG-NONE-001", "--index", "team"),
    ],
    ids=" ".join,
)
def test_commands_of_indexes_name_their_distribution(
    core: dict[str, str], root: Path, words: tuple[str, ...]
) -> None:
    given = core | {"REMIT_ROOT": str(root)}
    done = run(given, "-m", "remit", "package", *words)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "remit-index, which is not installed" in done.stderr
    assert "next: pip install remit-index\n" in done.stderr


def test_the_help_says_what_the_index_needs(core: dict[str, str]) -> None:
    done = run(core, "-m", "remit", "package", "--help")
    assert "Manage signed package indexes (needs remit-index)." in done.stdout


def test_a_server_with_agents_over_a2a_names_its_distribution(
    core: dict[str, str], root: Path
) -> None:
    opened = (
        "import sys\n"
        "from remit import Runtime\n"
        "from remit.server import LoopbackServer\n"
        "with Runtime.open(sys.argv[1]) as runtime:\n"
        "    LoopbackServer(runtime).close()\n"
    )
    without = run(core, "-c", opened, root)
    assert without.returncode == 0, without.stderr
    tea = '[a2a.tea]\nurl = "http://127.0.0.1:1/"\n'
    file = root / "remit.toml"
    before = file.read_text() if file.exists() else ""
    file.write_text(before + tea)
    done = run(core, "-m", "remit", "serve", "--dev", "--port", 0, "--root", root)
    file.write_text(before)
    assert done.returncode == 2, done.stderr
    assert "a2a is in the distribution remit-interop, which is not installed" in done.stderr
    assert "next: pip install remit-interop\n" in done.stderr


def test_a_distribution_of_another_version_says_so() -> None:
    with pytest.raises(MissingDistributionError, match="does not match Remit") as missing:
        load_extension(INDEX, "remit.commands", "package.unheard")
    assert missing.value.code == "index_not_installed"
    assert missing.value.next_step == "pip install remit-index"
