"""Publishing an index."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.packages.making import LIMITS, sha256
from tuf.api.metadata import Metadata, Targets

from index_tests.making import (
    SETTINGS,
    archive,
    client,
    fails,
    listed,
    metadata,
    publisher,
    root_json,
    tree,
    unchanged,
    version_of,
)
from remit.kernel.errors import InvalidInputError
from remit.packages import ArchiveError, Manifest, PackageKey, SignatureError, sign
from remit_index import IndexPublisher, PackageIndex


def signature(top: Path, file: Path) -> Path:
    key = PackageKey.create(top / f"{file.name}.pem", "maker")
    source = top / file.name.removesuffix(".tar.gz") / "manifest.json"
    manifest = Manifest.parse(source.read_bytes())
    made = file.with_name(file.name.replace(".tar.gz", ".intoto.json"))
    made.write_bytes(sign(sha256(file.read_bytes()), manifest, key))
    return made


def test_what_lies_where(served: Path) -> None:
    file = served / "PKG-EXAMPLE-001-1.0.0.tar.gz"
    digest = sha256(file.read_bytes()).removeprefix("sha256:")
    assert set(tree(served / "served")) == {
        ".lock",
        "metadata/1.root.json",
        "metadata/1.snapshot.json",
        "metadata/2.snapshot.json",
        "metadata/1.targets.json",
        "metadata/2.targets.json",
        "metadata/timestamp.json",
        f"targets/packages/PKG-EXAMPLE-001/{digest}.1.0.0.tar.gz",
    }
    target = Metadata[Targets].from_bytes(metadata(served, "2.targets.json").read_bytes()).signed
    (one,) = target.targets.values()
    assert one.path == "packages/PKG-EXAMPLE-001/1.0.0.tar.gz"
    assert one.custom == {
        "package_id": "PKG-EXAMPLE-001",
        "version": "1.0.0",
        "title": "An example",
        "manifest_sha256": Manifest.parse(
            (served / "PKG-EXAMPLE-001-1.0.0" / "manifest.json").read_bytes()
        ).digest,
    }
    assert one.length == file.stat().st_size


def test_keys(served: Path) -> None:
    keys = served / "keys"
    assert keys.stat().st_mode & 0o777 == 0o700
    names = sorted(file.name for file in keys.glob("*.pem"))
    assert names == ["root.pem", "snapshot.pem", "targets.pem", "timestamp.pem"]
    assert {file.stat().st_mode & 0o777 for file in keys.glob("*.pem")} == {0o600}
    (keys / "timestamp.pem").chmod(0o644)
    with unchanged(served / "served"), fails("index_key", "can be read by others"):
        publisher(served).publish(archive(served, version="1.1.0"))
    (served / "link").symlink_to(served / "served")
    for place in ("served", "served/keys", "link/keys", "link/../served/keys"):
        with pytest.raises(InvalidInputError, match="is in the index"):
            IndexPublisher(served / "served", served / place, SETTINGS)


def test_an_index_is_made_once(served: Path) -> None:
    with fails("index_not_added"):
        publisher(served / "other").publish(served / "PKG-EXAMPLE-001-1.0.0.tar.gz")
    with unchanged(served / "served"), fails("index_exists", "already"):
        publisher(served).create()
    (served / "served").rename(served / "first")
    with unchanged(served / "first"), fails("index_exists", "keys of another index"):
        publisher(served).create()


def test_a_version_is_published_once(served: Path) -> None:
    bad = served / "bad.tar.gz"
    bad.write_bytes(b"\x1f\x8b\x08\x00 no package")
    other = archive(served / "other", title="Something else")
    with unchanged(served / "served"):
        (again,) = publisher(served).publish(served / "PKG-EXAMPLE-001-1.0.0.tar.gz")
        assert (again.version, again.title) == ("1.0.0", "An example")
        with fails("index_exists", "other content"):
            publisher(served).publish(archive(served, "PKG-NEW-001"), other)
        with pytest.raises(ArchiveError):
            publisher(served).publish(archive(served, "PKG-NEW-001"), bad)
        bad.write_bytes(bytes(LIMITS.compressed_bytes + 1))
        with fails("archive_too_large"):
            publisher(served).publish(bad)
        with fails("unreadable", "No such file"):
            publisher(served).publish(served / "none.tar.gz")


def test_a_signature_comes_with_it_or_later(served: Path, team: PackageIndex) -> None:
    file = served / "PKG-EXAMPLE-001-1.0.0.tar.gz"
    envelope = signature(served, file)
    assert publisher(served).publish(file)[0].signed
    data = envelope.read_bytes()
    envelope.unlink()
    assert publisher(served).publish(file)[0].signed  # it stays
    team.refresh()
    assert team.fetch("PKG-EXAMPLE-001").envelope == data
    other = archive(served, version="2.0.0")
    envelope = served / "PKG-EXAMPLE-001-2.0.0.intoto.json"
    envelope.write_bytes(data)
    with unchanged(served / "served"):
        with fails("index_mixed", "of another archive"):
            publisher(served).publish(other)
        for wrong in (b"", b"{}", b"x" * 20_000):
            envelope.write_bytes(wrong)
            with pytest.raises(SignatureError):
                publisher(served).publish(other)


def test_withdrawing(served: Path, team: PackageIndex) -> None:
    publisher(served).publish(archive(served, version="1.1.0"))
    publisher(served).withdraw("PKG-EXAMPLE-001", "1.1.0")
    team.refresh()
    assert listed(team) == [("PKG-EXAMPLE-001", "1.0.0")]
    with fails("package_not_in_index"):
        publisher(served).withdraw("PKG-EXAMPLE-001", "1.1.0")


def test_renewing(served: Path, team: PackageIndex) -> None:
    now = datetime.now(UTC)
    before = version_of(served, "timestamp.json")
    expiry = publisher(served, age_days=-2).renew()
    near = timedelta(minutes=5)
    assert abs(expiry["timestamp"] - now - timedelta(days=9)) < near
    assert abs(expiry["snapshot"] - now - timedelta(days=32)) < near
    assert abs(expiry["targets"] - now - timedelta(days=365)) < near
    assert version_of(served, "timestamp.json") == before + 1
    assert abs(team.refresh().expires - expiry["timestamp"]) < near
    expiry = publisher(served, age_days=-2).renew(everything=True)
    assert abs(expiry["targets"] - now - timedelta(days=367)) < near
    assert abs(expiry["root"] - now - timedelta(days=367)) < near
    assert team.refresh().root_version == 2
    assert listed(team) == [("PKG-EXAMPLE-001", "1.0.0")]


def test_root_and_targets_keys_can_be_away(served: Path, team: PackageIndex) -> None:
    for name in ("root", "targets"):
        (served / "keys" / f"{name}.pem").rename(served / f"{name}.pem")
    publisher(served).renew()
    team.refresh()
    for attempt in (
        lambda: publisher(served).publish(archive(served, version="1.1.0")),
        lambda: publisher(served).renew(everything=True),
        lambda: publisher(served).rotate("timestamp"),
    ):
        with unchanged(served / "served"), fails("index_key", "0 of the 1 keys"):
            attempt()
    (served / "targets.pem").rename(served / "keys" / "targets.pem")
    publisher(served).publish(archive(served, version="1.1.0"))


def test_thresholds(tmp_path: Path) -> None:
    publisher(tmp_path).create({"root": 2, "targets": 3})
    assert len(list((tmp_path / "keys").glob("root*.pem"))) == 2
    assert len(list((tmp_path / "keys").glob("targets*.pem"))) == 3
    publisher(tmp_path).publish(archive(tmp_path))
    index = client(tmp_path)
    given = index.add(root_json(tmp_path))
    assert (given.roles["root"].threshold, len(given.roles["root"].keyids)) == (2, 2)
    assert listed(index) == [("PKG-EXAMPLE-001", "1.0.0")]
    for role in ("targets", "root"):
        publisher(tmp_path).rotate(role)
    index.refresh()
    # One signature less than asked for, put in by hand.
    file = metadata(tmp_path, "timestamp.json")
    publisher(tmp_path).rotate("timestamp")
    value = json.loads(file.read_bytes())
    value["signatures"] = []
    file.write_text(json.dumps(value))
    with fails("index_bad_signature"):
        index.refresh()
    for wrong in ({"root": 0}, {"boot": 1}):
        with pytest.raises(InvalidInputError, match="no threshold"):
            publisher(tmp_path / "other").create(wrong)


def test_nothing_is_signed_on_top_of_what_others_wrote(served: Path) -> None:
    """Who can write to the web server puts a package of their own into the list."""
    for name in ("timestamp.json", "2.snapshot.json", "2.targets.json"):
        file = metadata(served, name)
        honest = file.read_bytes()
        value = json.loads(honest)
        value["signed"]["x-more"] = {}
        file.write_text(json.dumps(value))
        with unchanged(served / "served"):
            for attempt in (
                lambda: publisher(served).publish(archive(served, version="1.1.0")),
                lambda: publisher(served).renew(),
                lambda: publisher(served).rotate("root"),
            ):
                with fails("index_damaged", "not what its publisher signed"):
                    attempt()
        file.write_bytes(honest)


def test_another_machine_with_the_keys(served: Path, team: PackageIndex) -> None:
    """It has the root metadata of before the rotation, and follows like a client."""
    subprocess.run(["cp", "-r", served / "keys", served / "copy"], check=True)
    publisher(served).rotate("root")
    for file in (served / "keys").glob("*.pem"):
        (served / "copy" / file.name).write_bytes(file.read_bytes())
        (served / "copy" / file.name).chmod(0o600)
    other = IndexPublisher(served / "served", served / "copy", SETTINGS)
    other.publish(archive(served, version="1.1.0"))
    team.refresh()
    assert listed(team) == [("PKG-EXAMPLE-001", "1.1.0")]


def test_an_expired_index_can_be_renewed(tmp_path: Path) -> None:
    old = publisher(tmp_path, age_days=900)
    old.create()
    old.publish(archive(tmp_path))
    with fails("index_expired"):
        client(tmp_path).add(root_json(tmp_path))
    publisher(tmp_path).renew(everything=True)
    index = client(tmp_path)
    index.add(root_json(tmp_path))  # the old one leads to the new one
    assert listed(index) == [("PKG-EXAMPLE-001", "1.0.0")]
