"""Whose a contract is, by the package that brought it and never by its own words."""

from __future__ import annotations

import json
from pathlib import Path

from remit import Runtime
from remit.contracts import ContractLoader
from tests.support.packages import bring
from tests.support.roots import new_root

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
        found = runtime._contracts.load("PRC-LIAR-001")
        assert found.metadata == _CLAIMED
        assert found.package_id == package.package_id
        assert found.framework_id == package.manifest.framework_id != _CLAIMED["framework_id"]
        loader = ContractLoader(runtime.root.tier("ho1"), own, installed=runtime._installed)
        loaded = loader.load("PRC-HOME-001")
        assert (loaded.package_id, loaded.framework_id) == ("", "")
