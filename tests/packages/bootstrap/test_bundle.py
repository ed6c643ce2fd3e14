"""``CP_BOOTSTRAP.tar.gz``: what is in it, and that it is made in one way."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from remit.packages import PackageError, build_bundle
from tests.packages.bootstrap.making import ORDER, packages, unpacked
from tests.packages.making import LIMITS


def test_it_holds_what_a_root_needs_in_one_form(
    bundle: tuple[bytes, dict[str, Any]], tmp_path: Path
) -> None:
    with tarfile.open(fileobj=io.BytesIO(bundle[0])) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == [
        "BOOTSTRAP_MANIFEST.json",
        "INSTALL.md",
        "README.md",
        "install.sh",
        *(f"packages/{name}" for name in sorted(packages())),
        next(path for path in (one["path"] for one in bundle[1]["files"]) if path.endswith(".whl")),
    ]
    for member in members:
        assert member.isreg()
        assert (member.mtime, member.uid, member.gid) == (0, 0, 0)
        assert (member.uname, member.gname) == ("", "")
        assert member.mode == (0o755 if member.name == "install.sh" else 0o644)
    assert bundle[0][3:9] == bytes(6)  # gzip: no name, no time
    top = unpacked(bundle[0], tmp_path)
    manifest = json.loads((top / "BOOTSTRAP_MANIFEST.json").read_text())
    assert manifest["remit_version"] == bundle[1]["remit_version"]
    files = {one["path"]: one for one in manifest["files"]}
    assert set(files) == {member.name for member in members[1:]}
    for path, stated in files.items():
        data = (top / path).read_bytes()
        assert stated["sha256"] == hashlib.sha256(data).hexdigest()
        assert stated["bytes"] == len(data)
    ids = [one["package_id"] for one in manifest["packages"]]
    assert ids == [f"PKG-{word}-001" for word in ORDER]
    assert {one["archive"] for one in manifest["packages"]} <= set(files)
    for name in ("README.md", "INSTALL.md", "install.sh"):
        text = (top / name).read_text()
        assert bundle[1]["remit_version"] in text
        assert not re.search(r"@[A-Z]+@", text)
    for option in re.findall(r"(?m)^  (--[a-z-]+)", (top / "install.sh").read_text()):
        assert option == "--help" or f"`{option}" in (top / "INSTALL.md").read_text()


def test_what_is_no_wheel_is_refused() -> None:
    for data in (b"", b"no wheel", bytes(100)):
        with pytest.raises(PackageError, match="does not state its version"):
            build_bundle(("remit.whl", data), packages(), LIMITS)
