"""Files that mean harm, or only look as if: refused by name, and nobody else is harmed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from remit import Runtime
from remit.contracts import ContractError, ContractLoader
from tests.support.packages import bring
from tests.support.roots import new_root

CONTRACT = {
    "contract_id": "PRC-TEST-001",
    "version": "1.0.0",
    "prompt_pack_id": "PRM-TEST-001",
    "boundary": {"max_tokens": 10, "temperature": 0},
}
GOOD = json.dumps(CONTRACT).encode()
MIB = 1024 * 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("HO1/contracts", "HO1/prompt_packs", "HO1-other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "HO1/contracts/PRC-GOOD-001.json").write_text(
        json.dumps({**CONTRACT, "contract_id": "PRC-GOOD-001"})
    )
    return tmp_path / "HO1"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"{", "is not JSON"),
        (b"[]", "is not of type 'object'"),
        (GOOD[:-1] + b', "tier": "ho1", "tier": "hot"}', "the name 'tier' twice"),
        (GOOD[:-1] + b', "metadata": {"a": NaN}}', "is not JSON"),
        (GOOD[:-1] + b', "metadata": {"a": "\\ud800"}}', "is not JSON"),
        (GOOD[:-1] + b', "metadata": {"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}}", "JSON"),
        (GOOD[:-1] + b', "metadata": {"a": ' + b"[" * 500 + b"]" * 500 + b"}}", "nested"),
        (b"\xef\xbb\xbf" + GOOD, "byte order mark"),
        (GOOD[:-1] + b', "metadata": {"a": "\xff"}}', "not UTF-8, at byte"),
        (b" " * MIB + GOOD, f"larger than {MIB:,} bytes"),
        (GOOD[:-1] + b', "tier": "' + b"x" * 100_000 + b'"}', "at tier: "),
    ],
)
def test_a_contract_that_is_none(folder: Path, data: bytes, told: str) -> None:
    (folder / "contracts/PRC-TEST-001.json").write_bytes(data)
    loader = ContractLoader(folder)
    with pytest.raises(ContractError) as caught:
        loader.load("PRC-TEST-001")
    assert caught.value.code == "contract_schema_invalid"
    assert "PRC-TEST-001.json" in caught.value.message
    assert told in caught.value.message
    assert len(caught.value.message) < 1_000
    assert loader.load("PRC-GOOD-001").version == "1.0.0"


@pytest.mark.parametrize(
    "name",
    ["../HO1-other/PRM-TEST-001", "/etc/passwd", "PRM-TEST-001.txt", "PRM-*-001", "", "PRM-T-1\n"],
)
def test_a_packs_name_is_no_path(folder: Path, name: str) -> None:
    (folder.parent / "HO1-other/PRM-TEST-001.txt").write_text("secret")
    (folder / "prompt_packs/PRM-TEST-001.txt").write_text("hello")
    with pytest.raises(ContractError) as caught:
        ContractLoader(folder).load_pack(name)
    assert caught.value.code == "prompt_pack_not_found"
    with pytest.raises(ContractError) as caught:
        ContractLoader(folder).load(name)
    assert caught.value.code == "contract_not_found"


# What is put in the place of a file; beside its folder is ``outside``, which can be read.
NO_PLAIN_FILES: dict[str, Callable[[Path, Path], None]] = {
    "a link out": lambda path, outside: path.symlink_to(outside),
    "a link to a sibling": lambda path, outside: path.symlink_to(f"../../HO1-other/{outside.name}"),
    "a pipe": lambda path, outside: os.mkfifo(path),
    "a folder": lambda path, outside: path.mkdir(),
    "a device": lambda path, outside: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("put", NO_PLAIN_FILES.values(), ids=NO_PLAIN_FILES)
@pytest.mark.parametrize("name", ["contracts/PRC-TEST-001.json", "prompt_packs/PRM-TEST-001.txt"])
def test_what_is_no_plain_file(folder: Path, name: str, put: Callable[[Path, Path], None]) -> None:
    (folder.parent / "HO1-other/outside").write_bytes(GOOD)
    put(folder / name, folder.parent / "HO1-other/outside")
    loader = ContractLoader(folder)
    load = loader.load_pack if "PRM" in name else loader.load
    with pytest.raises(ContractError) as caught:
        load(Path(name).stem)
    assert caught.value.code == "contract_schema_invalid"
    assert Path(name).name in caught.value.message
    assert any(Path(name).name in problem for problem in loader.problems())


@pytest.mark.parametrize("name", ["PRC-TEST-001@2.0.0.json", "PRC-TEST-001@.json"])
def test_a_file_is_called_after_what_it_holds(folder: Path, name: str) -> None:
    (folder / "contracts" / name).write_bytes(GOOD)
    with pytest.raises(ContractError, match=r"Rename the file to PRC-TEST-001\.json"):
        ContractLoader(folder).load("PRC-TEST-001")


# -- Whose a contract is, by the package that brought it and never by its own words --------------


_CLAIMED = {"framework_id": "FMWK-GOVERNANCE-001", "package_id": "PKG-KERNEL-001"}
_CONTRACT = {
    "contract_id": "PRC-LIAR-001",
    "version": "1.0.0",
    "prompt_pack_id": "PRM-LIAR-001",
    "boundary": {"max_tokens": 10, "temperature": 0},
    "examples": [{"input": {}}],
    "metadata": _CLAIMED,
}


def test_a_contract_that_claims_to_be_anothers(tmp_path: Path) -> None:
    root = tmp_path / "root"
    new_root(root)
    data = json.dumps(_CONTRACT).encode()
    files = {
        "HO1/contracts/PRC-LIAR-001.json": data,
        "HO1/prompt_packs/PRM-LIAR-001.txt": b"hello",
    }
    package = bring(root, tmp_path / "scratch", files)
    own = tmp_path / "own"
    for name, raw in files.items():
        place = own / name.removeprefix("HO1/").replace("LIAR", "HOME")
        place.parent.mkdir(parents=True)
        place.write_bytes(raw.replace(b"LIAR", b"HOME"))
    with Runtime.open(root) as runtime:
        found = runtime.contracts.load("PRC-LIAR-001")
        assert found.metadata == _CLAIMED
        assert found.package_id == package.package_id
        assert found.framework_id == package.manifest.framework_id != _CLAIMED["framework_id"]
        loader = ContractLoader(runtime.root.tier("ho1"), own, installed=runtime._installed)
        loaded = loader.load("PRC-HOME-001")
        assert (loaded.package_id, loaded.framework_id) == ("", "")
