"""Attacks on an index, done for real: the files that a client gets are other ones.

After each the client uses what it used before.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tuf.ngclient._internal.trusted_metadata_set import TrustedMetadataSet

from index_tests.forging import forge, forge_snapshot, pointing_to
from index_tests.making import (
    archive,
    client,
    fails,
    listed,
    metadata,
    publisher,
    refused,
    root_json,
    saved,
    version_of,
)
from remit.packages import PackageError
from remit_index import PackageIndex

_ID = "PKG-EXAMPLE-001"


@pytest.fixture
def moved(served: Path, team: PackageIndex) -> PackageIndex:
    """The client has seen 1.1.0; ``old`` is a copy of the index before."""
    saved(served, "old")
    publisher(served).publish(archive(served, version="1.1.0"))
    team.refresh()
    assert listed(team) == [(_ID, "1.1.0")]
    return team


def forge_timestamp(top: Path, snapshot: str, version: int) -> None:
    """A new timestamp that leads to that snapshot."""
    made = pointing_to(metadata(top, snapshot).read_bytes(), version)
    forge(
        top, "timestamp", top / "keys" / "timestamp.pem",
        lambda signed: setattr(signed, "snapshot_meta", made),
    )  # fmt: skip


def test_rollback(served: Path, moved: PackageIndex) -> None:
    now = saved(served, "now")
    # An old timestamp; then one that its key made for the old snapshot, then with snapshot's key.
    shutil.copy(served / "old/metadata/timestamp.json", metadata(served, "timestamp.json"))
    refused(moved, "index_rolled_back")
    shutil.copy(now / "metadata/timestamp.json", metadata(served, "timestamp.json"))
    forge_timestamp(served, "2.snapshot.json", 2)
    refused(moved, "index_rolled_back")
    shutil.rmtree(served / "served")
    now.rename(served / "served")
    forge_snapshot(served, pointing_to(metadata(served, "2.targets.json").read_bytes(), 2))
    refused(moved, "index_rolled_back")
    # The whole index.
    shutil.rmtree(served / "served")
    (served / "old").rename(served / "served")
    refused(moved, "index_rolled_back")
    client(served, name="fresh").add(root_json(served))  # who never saw more cannot know


def test_a_list_that_is_dropped_from_the_snapshot(served: Path, moved: PackageIndex) -> None:
    forge(served, "snapshot", served / "keys/snapshot.pem", lambda signed: signed.meta.clear())
    forge_timestamp(served, "4.snapshot.json", 4)
    refused(moved, "index_bad_signature")


def test_freeze_by_expired_parts(served: Path, moved: PackageIndex) -> None:
    publisher(served, age_days=8).renew()
    refused(moved, "index_expired")
    assert moved.known().expires > datetime.now(UTC)  # that of the state that it goes on with
    for age in (31, 400):
        publisher(served, age_days=age).renew(everything=True)
        refused(moved, "index_expired")


def test_freeze_by_giving_the_same_again_and_again(
    team: PackageIndex, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expires = team.refresh().expires
    begin = TrustedMetadataSet.__init__

    def later(self: TrustedMetadataSet, *arguments: Any) -> None:
        begin(self, *arguments)
        self.reference_time = expires + timedelta(seconds=1)

    monkeypatch.setattr(TrustedMetadataSet, "__init__", later)
    refused(team, "index_expired")
    assert team.known().expires == expires
    with fails("index_expired"):
        client(served).fetch(_ID)


def test_mix_and_match(served: Path, moved: PackageIndex) -> None:
    fresh = client(served, name="fresh")
    for new, old in (("3.targets.json", "2.targets.json"), ("3.snapshot.json", "2.snapshot.json")):
        shutil.copy(metadata(served, old), metadata(served, new))
        with fails("index_mixed"):
            fresh.add(root_json(served))
        assert not (served / "root" / "indexes" / "fresh").exists()
    assert listed(moved) == [(_ID, "1.1.0")]


def test_mix_and_match_where_only_versions_are_signed(served: Path, team: PackageIndex) -> None:
    """Other publishers need not sign hashes of their metadata; versions hold all the same."""

    def bare(signed: Any) -> None:
        signed.meta["targets.json"].version = 9
        signed.meta["targets.json"].hashes = signed.meta["targets.json"].length = None

    forge(served, "snapshot", served / "keys" / "snapshot.pem", bare)
    forge_timestamp(served, "3.snapshot.json", 3)
    shutil.copy(metadata(served, "2.targets.json"), metadata(served, "9.targets.json"))
    refused(team, "index_mixed")


def test_an_altered_archive(served: Path, moved: PackageIndex) -> None:
    (file,) = (served / "served/targets/packages" / _ID).glob("*.1.1.0.tar.gz")
    honest = file.read_bytes()
    other = next(file.parent.glob("*.1.0.0.tar.gz")).read_bytes()
    flipped = bytes([*honest[:99], honest[99] ^ 1, *honest[100:]])
    for wrong in (flipped, honest[:-1], honest + b"x", b"", other):
        file.write_bytes(wrong)
        with fails("index_mixed"):
            moved.fetch(_ID)
    file.unlink()
    with fails("index_unreachable"):
        moved.fetch(_ID)
    file.write_bytes(honest)
    assert moved.fetch(_ID).data == honest


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with every kind of file, and its first root metadata beside it."""
    top = tmp_path_factory.mktemp("honest")
    publisher(top).create()
    publisher(top).publish(archive(top))
    publisher(top).rotate("timestamp")
    (top / "1.root.json").write_bytes(root_json(top))
    return top


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_altered_bytes_of_metadata(data: st.DataObject, honest: Path) -> None:
    """A byte is another one, is lost, or comes in: an error with a code, or the honest list."""
    names = sorted(file.name for file in metadata(honest, "").iterdir())
    file = metadata(honest, data.draw(st.sampled_from(names)))
    right = file.read_bytes()
    place = data.draw(st.integers(0, len(right) - 1))
    put = data.draw(st.binary(max_size=2))
    file.write_bytes(right[:place] + put + right[place + 1 :])
    index = client(honest, name="fresh")
    try:
        index.add((honest / "1.root.json").read_bytes())
    except PackageError as error:
        assert error.code.startswith("index_")
        assert not (honest / "root" / "indexes" / "fresh").exists()
    else:
        assert listed(index) == [(_ID, "1.0.0")]
        shutil.rmtree(honest / "root" / "indexes" / "fresh")
    finally:
        file.write_bytes(right)


def test_what_is_no_metadata(served: Path, moved: PackageIndex) -> None:
    timestamp, root = metadata(served, "timestamp.json"), metadata(served, "2.root.json")
    before = timestamp.read_bytes()
    for wrong in (
        b"",
        b"<html>Not what you think</html>",
        b"null",
        b"{}",
        b"[" * 15_000,
        b'{"signed": {"_type": "timestamp"}, "signatures": []}',
        b'{"signed": 1, "signatures": {}}',
        b"\xff\xfe",
    ):
        timestamp.write_bytes(wrong)
        refused(moved, "index_bad_signature")
        timestamp.write_bytes(before)
        root.write_bytes(wrong)
        refused(moved, "index_bad_signature")
        root.unlink()
    moved.refresh()
    publisher(served).renew()
    value = json.loads(timestamp.read_bytes())
    value["signatures"][0]["sig"] = "0" * 128
    timestamp.write_text(json.dumps(value))
    refused(moved, "index_bad_signature")


def test_the_root_metadata_of_others(served: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    publisher(theirs).create()
    index = client(served)
    with fails("index_bad_signature"):
        index.add(root_json(theirs))
    changed = json.loads(root_json(served))
    changed["signed"]["expires"] = "2999-01-01T00:00:00Z"
    for wrong in (
        metadata(served, "timestamp.json").read_bytes(),
        json.dumps(changed).encode(),
        b"",
        b"{}",
        b"[" * 100_000,
    ):
        with fails("index_bad_signature", "no root metadata"):
            index.add(wrong)
    assert [one.name for one in (served / "root" / "indexes").iterdir()] == [".team.lock"]


def test_another_index_in_its_place(served: Path, moved: PackageIndex, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    publisher(theirs).create()
    publisher(theirs).publish(archive(theirs, version="9.0.0"))
    for _ in range(4):
        publisher(theirs).rotate("root")
    (served / "served").rename(served / "mine")
    (theirs / "served").rename(served / "served")
    refused(moved, "index_bad_signature")
    # Nor does the publisher sign on top of it.
    with fails("index_damaged"):
        publisher(served).publish(archive(served, version="1.2.0"))


@pytest.mark.parametrize("role", ["root", "targets", "snapshot", "timestamp"])
def test_clients_follow_new_keys(served: Path, moved: PackageIndex, role: str) -> None:
    (retired,) = publisher(served).rotate(role)
    assert retired.name.startswith(role)
    publisher(served).publish(archive(served, version="1.2.0"))
    assert moved.refresh().root_version == 2
    assert listed(moved) == [(_ID, "1.2.0")]
    publisher(served).rotate(role)
    publisher(served).rotate("root")
    publisher(served).publish(archive(served, version="1.3.0"))
    assert moved.refresh().root_version == 4  # two at once
    fresh = client(served, name="fresh")
    fresh.add(root_json(served, 2))
    assert listed(fresh) == listed(moved) == [(_ID, "1.3.0")]
    if role != "root":
        with fails("index_bad_signature"):  # version 2 does not know today's keys
            client(served, name="short", root_rotations=1).add(root_json(served, 1))


def test_a_replaced_key_is_kept_from_a_failed_refresh(served: Path, moved: PackageIndex) -> None:
    before = metadata(served, "timestamp.json").read_bytes()
    (retired,) = publisher(served).rotate("timestamp")
    kept = metadata(served, "timestamp.json").read_bytes()
    metadata(served, "timestamp.json").unlink()
    refused(moved, "index_unreachable")  # the new root metadata came, what follows did not
    hidden = metadata(served, "2.root.json").read_bytes()
    metadata(served, "2.root.json").unlink()
    metadata(served, "timestamp.json").write_bytes(before)
    forge(served, "timestamp", retired, lambda signed: None)
    refused(moved, "index_bad_signature")
    metadata(served, "2.root.json").write_bytes(hidden)
    metadata(served, "timestamp.json").write_bytes(kept)
    moved.refresh()


def test_root_metadata_that_does_not_follow(served: Path, moved: PackageIndex) -> None:
    forge(served, "root", served / "keys" / "timestamp.pem", lambda signed: None)
    refused(moved, "index_bad_signature")
    shutil.copy(metadata(served, "1.root.json"), metadata(served, "2.root.json"))
    refused(moved, "index_mixed")


@pytest.mark.parametrize(
    ("put", "code"),
    [
        (lambda file: file.symlink_to("/dev/zero"), "index_unreachable"),
        (os.mkfifo, "index_unreachable"),
        (Path.mkdir, "index_unreachable"),
        (lambda file: file.write_bytes(bytes(300_000)), "index_mixed"),
    ],
)
def test_odd_files_in_a_directory(
    served: Path, moved: PackageIndex, put: Callable[[Path], None], code: str
) -> None:
    metadata(served, "timestamp.json").unlink()
    put(metadata(served, "timestamp.json"))
    refused(moved, code)
    assert version_of(served, "3.snapshot.json") == 3
