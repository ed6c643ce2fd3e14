"""A release that was changed, or that another signed, is refused."""

import json
import os
import subprocess
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from remit.packages import PackageKey
from tools import release

COMMIT = "0" * 40


@pytest.fixture
def key(tmp_path: Path) -> PackageKey:
    return PackageKey.create(tmp_path / "release.pem", "Releases")


def public(key: PackageKey) -> str:
    return "ed25519:" + key.signer.public_key.keyval["public"]


@pytest.fixture
def made(tmp_path: Path, key: PackageKey) -> Path:
    out = tmp_path / "dist"
    out.mkdir()
    (out / "remit-1.whl").write_bytes(b"a wheel")
    (out / "remit-1.cdx.json").write_bytes(b"{}")
    release.attest(out, "remit-1", COMMIT, datetime.now(UTC), tmp_path / "release.pem")
    return out


def test_a_release_is_what_its_key_signed(
    made: Path, key: PackageKey, capsys: pytest.CaptureFixture[str]
) -> None:
    release.verify(made, public(key))
    assert "2 files are what the provenance names, signed by that key" in capsys.readouterr().out
    envelope = json.loads((made / "remit-1.intoto.jsonl").read_text())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"


def test_what_was_changed_added_or_removed_is_named(made: Path) -> None:
    (made / "remit-1.whl").write_bytes(b"another wheel")
    (made / "added.whl").write_bytes(b"")
    (made / "remit-1.cdx.json").unlink()
    with pytest.raises(SystemExit, match=r"added.whl, remit-1.cdx.json, remit-1.whl"):
        release.verify(made, None)


def test_another_key_or_none_is_refused(made: Path, tmp_path: Path, key: PackageKey) -> None:
    other = PackageKey.create(tmp_path / "other.pem", "Another")
    with pytest.raises(SystemExit, match="did not sign"):
        release.verify(made, public(other))
    with pytest.raises(SystemExit, match="64 hex"):
        release.verify(made, "ed25519:nonsense")
    (made / "remit-1.intoto.jsonl").unlink()
    release.attest(made, "remit-1", COMMIT, datetime.now(UTC), None)
    with pytest.raises(SystemExit, match="did not sign"):
        release.verify(made, public(key))


def test_the_distributions_beside_remit_are_part_of_a_release(tmp_path: Path) -> None:
    release.build_extras(tmp_path, {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
    wheels = {path.name.partition("-")[0]: path for path in tmp_path.iterdir()}
    assert {*wheels} == {"remit_index", "remit_interop"}
    for name, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            held = archive.namelist()
        assert f"{name}/py.typed" in held
        [info] = {path.partition("/")[0] for path in held if ".dist-info" in path}
        assert {f"{info}/entry_points.txt", f"{info}/licenses/LICENSE"} <= {*held}
        assert all(path.startswith((f"{name}/", info)) for path in held)


def test_the_sums_are_those_that_others_check(made: Path) -> None:
    release.write_sums(made)
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=made, capture_output=True, check=False).returncode == 0
    (made / "remit-1.whl").write_bytes(b"another wheel")
    assert subprocess.run(check, cwd=made, capture_output=True, check=False).returncode == 1
