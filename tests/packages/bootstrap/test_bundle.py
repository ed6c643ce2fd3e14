"""``CP_BOOTSTRAP.tar.gz``: what is in it, and that it is made in one way."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from remit.packages.bootstrap import BootstrapError, Bundle, build_bundle
from tests.packages.bootstrap.making import ORDER, packages, unpacked
from tests.packages.making import LIMITS


def _members(bundle: Bundle) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        return archive.getmembers()


def test_it_holds_what_a_root_needs(bundle: Bundle) -> None:
    names = [member.name for member in _members(bundle)]
    assert names == [
        "BOOTSTRAP_MANIFEST.json",
        "INSTALL.md",
        "README.md",
        "install.sh",
        *(f"packages/{name}" for name in sorted(packages())),
        bundle.wheel,
    ]


def test_headers_tell_nothing_of_the_machine(bundle: Bundle) -> None:
    for member in _members(bundle):
        assert member.isreg()
        assert (member.mtime, member.uid, member.gid) == (0, 0, 0)
        assert (member.uname, member.gname) == ("", "")
        assert member.mode == (0o755 if member.name == "install.sh" else 0o644)
    assert bundle.data[3:9] == bytes(6)  # gzip: no name, no time


def test_the_manifest_has_every_file_and_the_order(bundle: Bundle, tmp_path: Path) -> None:
    top = unpacked(bundle.data, tmp_path)
    manifest = json.loads((top / "BOOTSTRAP_MANIFEST.json").read_text())
    assert manifest["remit_version"] == bundle.version
    there = {str(one.relative_to(top)) for one in top.rglob("*") if one.is_file()}
    assert {one["path"] for one in manifest["files"]} == there - {"BOOTSTRAP_MANIFEST.json"}
    for one in manifest["files"]:
        data = (top / one["path"]).read_bytes()
        assert one["sha256"] == hashlib.sha256(data).hexdigest()
        assert one["bytes"] == len(data)
    assert [one["package_id"] for one in manifest["packages"]] == [
        f"PKG-{word}-001" for word in ORDER
    ]
    assert {one["archive"] for one in manifest["packages"]} <= there


def test_the_texts_are_of_this_version(bundle: Bundle, tmp_path: Path) -> None:
    top = unpacked(bundle.data, tmp_path)
    for name in ("README.md", "INSTALL.md", "install.sh"):
        text = (top / name).read_text()
        assert bundle.version in text
        assert not re.search(r"@[A-Z]+@", text)
    for option in re.findall(r"(?m)^  (--[a-z-]+)", (top / "install.sh").read_text()):
        assert option == "--help" or f"`{option}" in (top / "INSTALL.md").read_text()


@pytest.mark.parametrize("data", [b"", b"no wheel", bytes(100)])
def test_what_is_no_wheel_is_refused(data: bytes) -> None:
    with pytest.raises(BootstrapError, match="does not state its version") as caught:
        build_bundle(("remit.whl", data), packages(), LIMITS)
    assert caught.value.next_step
