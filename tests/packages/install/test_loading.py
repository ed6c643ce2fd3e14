"""What runs sees what is installed, as it was installed, and nothing else."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import remit
from remit.contracts import ContractError, ContractLoader
from remit.kernel.errors import RemitError
from remit.kernel.installed_files import InstalledFiles
from remit.packages import IncomingArchive
from tests.packages.hostile import CASES, Case, Stage, busy, can_mount, full_disk, play, read_only
from tests.packages.install.killing import forked
from tests.packages.install.world import agreed, entries, governed, managing, tree

TOP = Path(__file__).parents[3]


def test_a_contract_comes_and_goes_with_its_package(stage: Stage) -> None:
    shipped = stage.root / "HO1/contracts/PRC-EXECUTE-001.json"
    contract = json.loads(shipped.read_bytes())
    pack = (stage.root / "HO1/prompt_packs" / f"{contract['prompt_pack_id']}.txt").read_bytes()
    contract.update(contract_id="PRC-MINE-001", prompt_pack_id="PRM-MINE-001")
    archive = stage.pack(
        {
            "HO1/contracts/PRC-MINE-001.json": json.dumps(contract).encode(),
            "HO1/prompt_packs/PRM-MINE-001.txt": pack,
        }
    )
    with remit.Runtime.open(stage.root) as runtime:
        with pytest.raises(ContractError):
            runtime.agent("mine", contract="PRC-MINE-001")
        stage.bring(archive)
        runtime.agent("mine", contract="PRC-MINE-001")
        stage.run(["remove", "PKG-MINE-001"])
        with pytest.raises(ContractError):
            runtime.agent("mine", contract="PRC-MINE-001")


def _loaded(root: Path, contract_id: str) -> Any:
    loader = ContractLoader(root / "HO1", installed=InstalledFiles(root))
    found = loader.load(contract_id)
    return loader.load_pack(found.prompt_pack_id)


def _opened(root: Path) -> None:
    with remit.Runtime.open(root):
        pass


@pytest.mark.parametrize(
    ("path", "load"),
    [
        ("HO1/contracts/PRC-EXECUTE-001.json", lambda root: _loaded(root, "PRC-EXECUTE-001")),
        ("HO1/prompt_packs/PRM-EXECUTE-001.txt", lambda root: _loaded(root, "PRC-EXECUTE-001")),
        ("HOT/config/defaults.toml", _opened),
        ("HOT/prices/prices.toml", _opened),
    ],
)
def test_a_changed_file_is_refused(stage: Stage, path: str, load: Callable[[Path], Any]) -> None:
    load(stage.root)
    file = stage.root / path
    right = file.read_bytes()
    file.write_bytes(right + b" ")
    with pytest.raises(RemitError, match=r"is not what|changed") as caught:
        load(stage.root)
    assert "restore" in caught.value.next_step
    stage.run(["restore"])
    assert file.read_bytes() == right
    load(stage.root)


def test_changed_weights_are_not_used(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    file = stage.root / "HOT/routing/weights.json"
    file.write_bytes(file.read_bytes() + b" ")
    _opened(stage.root)
    assert "differs from the file that PKG-ROUTER-001 installed" in caplog.text


def test_opening_a_root_ends_what_a_killed_process_began(stage: Stage) -> None:
    data = Path(stage.policy()).read_bytes()

    def die(step: str) -> None:
        if step.startswith("place HOT/registries"):
            os.kill(os.getpid(), signal.SIGKILL)

    def doomed() -> None:
        with managing(stage.root, die) as manager:
            manager.install([IncomingArchive(data)], dev=True)

    assert forked(doomed) == -signal.SIGKILL
    assert not InstalledFiles(stage.root).owner("HOT/policy/mine.md")
    _opened(stage.root)
    assert InstalledFiles(stage.root).owner("HOT/policy/mine.md") == "PKG-MINE-001"


MODULES = (
    "manager", "journal", "package_files", "archive_checks", "dependencies", "preconditions",
    "shipped", "registry", "install_plan", "permissions", "bootstrap", "distribution/wheel",
)  # fmt: skip


def test_the_page_names_the_codes_that_there_are() -> None:
    page = (TOP / "docs/package-install.md").read_text().split("## What is refused")[1]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    source = "".join((TOP / f"src/remit/packages/{name}.py").read_text() for name in MODULES)
    used = set(re.findall(r"Error\(\s*\"(\w+)\"", source))
    used |= set(re.findall(r"code(?:, \w+)? = \"(\w+)\"", source))
    assert {"missing_dependency", "needed", "busy", "unfinished", "case_only"} < used
    assert named == used - {"unsigned"}  # that one is docs/package-trust.md's


# -- What is refused is refused completely: one clear error, and nothing changed -----------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_refused_and_nothing_changed(case: Case, untouched: Stage, tmp_path: Path) -> None:
    stage = untouched.copy(tmp_path) if case.own_root else untouched
    told = play(case, stage)
    assert (told.code, told.exit) == (case.code, 1), told
    assert case.word in told.message, told
    assert told.next_step.strip(), told
    assert not told.changed
    assert told.entries == 0
    assert not [*stage.root.joinpath("HOT/installed/.journal").iterdir()]


# -- Disks that are really full or read-only, and a second process that holds the lock -----------


mounting = pytest.mark.skipif(not can_mount(), reason="may not mount")


def test_a_process_that_waits_too_long_changes_nothing(stage: Stage) -> None:
    before = tree(stage.root)
    done = busy(stage)
    assert done.returncode == 1
    assert f"Another process ({os.getpid()})" in done.stderr
    assert "next: Wait for that process" in done.stderr
    assert tree(stage.root) == before


@mounting
def test_a_read_only_disk(stage: Stage) -> None:
    before, count = tree(stage.root), entries(stage.root)
    done = read_only(stage)
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "next: " in done.stderr
    assert "Traceback" not in done.stderr
    assert (tree(stage.root), entries(stage.root)) == (before, count)


@mounting
@pytest.mark.parametrize("free_kb", [8, 836, 1500])
def test_a_full_disk(stage: Stage, free_kb: int) -> None:
    """Full for the ledger's log, at the entry, and not full.

    The numbers are for a file of 400 KiB, which is there twice, itself and in its archive. Where
    the disk counts otherwise another step fails; what has to hold then is the same.
    """
    before = governed(stage.root)
    done, root = full_disk(stage, free_kb)
    assert "Traceback" not in done.stderr, done.stderr
    assert "Remit itself failed" not in done.stderr, done.stderr
    recorded = done.returncode == 0 or "is recorded, but its files" in done.stderr
    assert recorded or "error: " in done.stderr
    assert done.returncode == 0 or "next: " in done.stderr
    with managing(root) as manager:
        manager.recover()
        registry = agreed(root, manager._ledger)
    assert ("PKG-MINE-001" in registry.packages) == recorded
    assert (root / "HOT/policy/mine.md").exists() == recorded
    if not recorded:
        assert governed(root) == before
