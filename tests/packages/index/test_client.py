"""Using an index."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from remit.kernel.errors import InvalidInputError
from remit.packages import ArchiveError
from remit.packages.errors import PackageIndexError
from remit.packages.index import (
    PackageIndex,
    find_in_indexes,
    open_indexes,
    remove_index,
)
from remit.packages.index.fetcher import parse_location
from tests.packages.index.making import (
    SETTINGS,
    archive,
    client,
    listed,
    publisher,
    root_json,
    settings,
    tree,
)
from tests.packages.making import sha256


def find(top: Path, package_id: str = "PKG-EXAMPLE-001", version: str | None = None, **more: str):  # type: ignore[no-untyped-def]
    return find_in_indexes(
        top / "root", package_id, version,
        into=top / "into", settings=SETTINGS, **more,
    )  # fmt: skip


def test_adding_searching_fetching(served: Path) -> None:
    file = archive(served, "PKG-OTHER-002", "0.1.0", title="Grüße ordnen")
    publisher(served).publish(file)
    index = client(served)
    given = index.add(root_json(served))
    assert given.sha256 == sha256(root_json(served))
    assert (given.version, given.threshold, len(given.keyids)) == (1, 1, 1)
    assert listed(index) == [("PKG-EXAMPLE-001", "1.0.0"), ("PKG-OTHER-002", "0.1.0")]
    assert [one.package_id for one in index.search("gRÜSSE")] == ["PKG-OTHER-002"]
    assert [one.package_id for one in index.search("other-0")] == ["PKG-OTHER-002"]
    assert index.search("nothing such") == []
    (found,) = index.versions("PKG-OTHER-002")
    assert (found.title, found.signed) == ("Grüße ordnen", False)
    assert (found.digest, found.length) == (sha256(file.read_bytes()), file.stat().st_size)
    got = index.fetch("PKG-OTHER-002", None, served / "into")
    assert got.archive == served / "into" / "PKG-OTHER-002-0.1.0.tar.gz"
    assert got.archive.read_bytes() == file.read_bytes()
    assert (got.envelope, got.index, got.listed) == (None, "team", found)
    assert [one.name for one in (served / "into").iterdir()] == [got.archive.name]


def test_another_process_uses_it(served: Path, team: PackageIndex) -> None:
    publisher(served).publish(archive(served, version="1.1.0"))
    assert listed(team) == [("PKG-EXAMPLE-001", "1.0.0")]  # nothing is fetched
    (again,) = open_indexes(served / "root", SETTINGS)
    assert (again.name, again.location) == ("team", str(served / "served"))
    assert again.fetch("PKG-EXAMPLE-001", None, served / "into").listed.version == "1.1.0"
    assert listed(team) == [("PKG-EXAMPLE-001", "1.1.0")]


def test_the_newest_is_no_prerelease(served: Path, team: PackageIndex) -> None:
    for version in ("2.0.0-rc.1", "1.10.0", "1.9.0", "1.10.0+build.7"):
        publisher(served).publish(archive(served, version=version))
    publisher(served).publish(archive(served, "PKG-YOUNG-001", "0.1.0-alpha"))
    team.refresh()
    assert [one.version for one in team.versions("PKG-EXAMPLE-001")] == [
        "2.0.0-rc.1", "1.10.0+build.7", "1.10.0", "1.9.0", "1.0.0",
    ]  # fmt: skip
    assert listed(team) == [("PKG-EXAMPLE-001", "1.10.0+build.7"), ("PKG-YOUNG-001", "0.1.0-alpha")]
    got = team.fetch("PKG-EXAMPLE-001", "2.0.0-rc.1", served / "into")
    assert got.listed.version == "2.0.0-rc.1"
    for package_id, version in (("PKG-EXAMPLE-001", "3.0.0"), ("PKG-NONE-001", None)):
        with pytest.raises(PackageIndexError) as refused:
            team.fetch(package_id, version, served / "into")
        assert refused.value.code == "package_not_in_index"


def test_it_is_added_once(served: Path, team: PackageIndex) -> None:
    before = tree(served / "root")
    with pytest.raises(PackageIndexError) as refused:
        client(served).add(root_json(served))
    assert refused.value.code == "index_exists"
    assert tree(served / "root") == before


def test_what_is_not_there_is_not_added(served: Path) -> None:
    index = client(served, location=str(served / "nowhere"))
    with pytest.raises(PackageIndexError, match="there is no directory") as refused:
        index.add(root_json(served))
    assert refused.value.code == "index_unreachable"
    assert [one.name for one in (served / "root" / "indexes").iterdir()] == [".lock"]
    for attempt in (index.refresh, index.known, index.search):
        with pytest.raises(PackageIndexError) as refused:
            attempt()
        assert refused.value.code == "index_not_added"
    with pytest.raises(PackageIndexError) as refused:
        PackageIndex.open(served / "root", "team", SETTINGS)
    assert refused.value.code == "index_not_added"
    assert open_indexes(served / "root", SETTINGS) == []


def test_removing(served: Path, team: PackageIndex) -> None:
    for name in ("../root", "..", "", "a/b", "."):
        with pytest.raises(InvalidInputError, match="cannot be an index's name"):
            remove_index(served / "root", name, 1.0)
    remove_index(served / "root", "team", 1.0)
    assert [one.name for one in (served / "root" / "indexes").iterdir()] == [".lock"]
    with pytest.raises(PackageIndexError) as refused:
        remove_index(served / "root", "team", 1.0)
    assert refused.value.code == "index_not_added"
    team.add(root_json(served))


def test_local_damage_is_named_and_mended(served: Path, team: PackageIndex) -> None:
    state = served / "root" / "indexes" / "team"
    for name in ("targets.json", "snapshot.json", "timestamp.json", "root.json"):
        for wrong in (b"", b"{}", b"\xff", b"[" * 100_000, None):
            file = (state / "current" / name).resolve()
            if wrong is None:
                file.unlink()
            else:
                file.write_bytes(wrong)
            with pytest.raises(PackageIndexError, match="refresh team") as refused:
                team.search()
            assert refused.value.code == "index_damaged"
            PackageIndex.open(served / "root", "team", SETTINGS).refresh()
            assert listed(team) == [("PKG-EXAMPLE-001", "1.0.0")]


@pytest.mark.parametrize("name", ["index.json", "trusted-root.json"])
@pytest.mark.parametrize("wrong", [b"", b"{}", b"[1]", b'{"name": "x", "location": 3}', b"\xff"])
def test_damage_to_what_was_trusted(
    served: Path, team: PackageIndex, name: str, wrong: bytes
) -> None:
    state = served / "root" / "indexes" / "team"
    (state / name).write_bytes(wrong)
    with pytest.raises(PackageIndexError) as refused:
        PackageIndex.open(served / "root", "team", SETTINGS).refresh()
    assert refused.value.code == "index_damaged"
    remove_index(served / "root", "team", 1.0)
    team.add(root_json(served))


def test_an_index_that_was_copied_under_another_name(served: Path, team: PackageIndex) -> None:
    folder = served / "root" / "indexes"
    shutil.copytree(folder / "team", folder / "mine", symlinks=True)
    with pytest.raises(PackageIndexError, match="'team'") as refused:
        PackageIndex.open(served / "root", "mine", SETTINGS)
    assert refused.value.code == "index_damaged"


def test_a_disk_that_takes_nothing(served: Path, team: PackageIndex) -> None:
    state = served / "root" / "indexes" / "team"
    shutil.rmtree(served / "into", ignore_errors=True)
    (served / "into").write_bytes(b"a file where a directory should be")
    with pytest.raises(PackageIndexError) as refused:
        team.fetch("PKG-EXAMPLE-001", None, served / "into")
    assert refused.value.code == "index_damaged"
    (state / ".lock").unlink()
    (state / ".lock").mkdir()
    with pytest.raises(PackageIndexError) as refused:
        team.refresh()
    assert refused.value.code == "index_damaged"


def test_another_process_is_at_it(served: Path, team: PackageIndex) -> None:
    import fcntl

    handle = os.open(served / "root" / "indexes" / "team" / ".lock", os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert listed(team) == [("PKG-EXAMPLE-001", "1.0.0")]  # reading waits for nobody
        waiting = PackageIndex.open(served / "root", "team", settings(lock_timeout_s=0.2))
        with pytest.raises(PackageIndexError) as refused:
            waiting.refresh()
        assert refused.value.code == "busy"
    finally:
        os.close(handle)
    waiting.refresh()


def test_readers_and_refreshers_at_once(served: Path, team: PackageIndex) -> None:
    seen: list[str] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def guarded(work) -> None:  # type: ignore[no-untyped-def]
        try:
            while not done.is_set():
                work()
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=guarded, args=(lambda: client(served).refresh(),)),
        threading.Thread(target=guarded, args=(lambda: client(served).refresh(),)),
        threading.Thread(
            target=guarded, args=(lambda: seen.append(client(served).search()[0].version),)
        ),
    ]
    for thread in threads:
        thread.start()
    try:
        for number in range(1, 6):
            publisher(served).publish(archive(served, version=f"1.{number}.0"))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failed == []
    assert seen == sorted(seen)  # never back
    team.refresh()
    assert listed(team) == [("PKG-EXAMPLE-001", "1.5.0")]


def test_finding_in_all_of_them(served: Path, team: PackageIndex, tmp_path: Path) -> None:
    second = tmp_path / "second"
    publisher(second).create()
    publisher(second).publish(archive(second, "PKG-MORE-001"))
    more = PackageIndex(served / "root", "more", str(second / "served"), SETTINGS)
    more.add(root_json(second))
    assert find(served).index == "team"
    got = find(served, "PKG-MORE-001")
    assert (got.index, got.archive.parent) == ("more", served / "into")
    with pytest.raises(PackageIndexError, match=r"none of the indexes \(more, team\)") as refused:
        find(served, "PKG-NONE-001")
    assert refused.value.code == "package_not_in_index"
    # The same archive in both is one package; another one of that name is not.
    publisher(second).publish(served / "PKG-EXAMPLE-001-1.0.0.tar.gz")
    assert find(served).index == "more"
    publisher(second).publish(archive(second, "PKG-EXAMPLE-001", "9.9.9"))
    with pytest.raises(PackageIndexError, match=r"more \(9\.9\.9\), team \(1\.0\.0\)") as refused:
        find(served)
    assert refused.value.code == "package_in_several"
    assert find(served, index="team").listed.version == "1.0.0"
    assert find(served, version="9.9.9").index == "more"
    # One that cannot be asked might have it.
    (second / "served").rename(second / "away")
    with pytest.raises(PackageIndexError) as refused:
        find(served)
    assert refused.value.code == "index_unreachable"


def test_finding_without_an_index(tmp_path: Path) -> None:
    with pytest.raises(PackageIndexError) as refused:
        find(tmp_path)
    assert refused.value.code == "index_not_added"
    with pytest.raises(InvalidInputError):
        find(tmp_path, index="../team")


def test_an_archive_under_the_name_of_another(served: Path, team: PackageIndex) -> None:
    """The publisher, or who has the targets key, signs it so."""
    from tests.packages.index.forging import forge_target

    data = archive(served / "x", "PKG-EXAMPLE-001", "1.5.0").read_bytes()
    forge_target(served, "packages/PKG-EXAMPLE-001/2.0.0.tar.gz", data)
    with pytest.raises(PackageIndexError, match=r"lists PKG-EXAMPLE-001 1\.5\.0 as 2") as refused:
        find(served)
    assert refused.value.code == "index_mixed"
    forge_target(served, "packages/PKG-OTHER-001/1.5.0.tar.gz", data)
    with pytest.raises(ArchiveError) as wrong:
        find(served, "PKG-OTHER-001")
    assert wrong.value.code == "wrong_id"
    assert list((served / "into").iterdir()) == []


def test_targets_that_are_no_packages_are_left_out(served: Path, team: PackageIndex) -> None:
    from tests.packages.index.forging import forge_target

    for path in (
        "packages/PKG-EXAMPLE-001/../../x.tar.gz",
        "packages/../PKG-EXAMPLE-001/1.0.1.tar.gz",
        "packages/PKG-EXAMPLE-001/1.0.1.zip",
        "packages/PKG-EXAMPLE-001/latest.tar.gz",
        "packages/pkg-example-001/1.0.1.tar.gz",
        "packages/PKG-EXAMPLE-001/1.0.1\n.tar.gz",
        "/packages/PKG-EXAMPLE-001/1.0.1.tar.gz",
    ):
        forge_target(served, path, b"x", write=False)
    forge_target(served, "packages/PKG-ODD-001/1.0.0.tar.gz", b"x", custom=["no", "object"])
    team.refresh()
    assert listed(team) == [("PKG-EXAMPLE-001", "1.0.0"), ("PKG-ODD-001", "1.0.0")]
    assert team.versions("PKG-ODD-001")[0].title == ""


def test_one_that_is_too_large(served: Path, team: PackageIndex) -> None:
    small = client(served, compressed_bytes=100)
    with pytest.raises(PackageIndexError) as refused:
        small.fetch("PKG-EXAMPLE-001", None, served / "into")
    assert refused.value.code == "index_too_large"
    with pytest.raises(PackageIndexError) as refused:
        client(served, metadata_bytes=100).refresh()
    assert refused.value.code == "index_mixed"
    assert listed(team) == [("PKG-EXAMPLE-001", "1.0.0")]


def test_index_json_is_what_was_given(served: Path, team: PackageIndex) -> None:
    text = (served / "root" / "indexes" / "team" / "index.json").read_text()
    assert json.loads(text) == {"name": "team", "location": str(served / "served")}


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("https://example.org/index/", "https://example.org/index"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://[::1]/a", "http://[::1]/a"),
        ("http://localhost/a", "http://localhost/a"),
        ("file:///srv/a%20b", "/srv/a b"),
        ("/srv/index", "/srv/index"),
        ("http://example.org/", None),
        ("http://127.0.0.1.example.org/", None),
        ("ftp://example.org/", None),
        ("file://example.org/srv", None),
        ("https://", None),
        ("https://example.org:port/", None),
        ("https://user:secret@example.org/", None),
        ("https://user@example.org/", None),
        ("https://example.org/?x=1", None),
        ("https://example.org/#x", None),
        ("https://[::1", None),
    ],
)
def test_locations(text: str, allowed: str | None) -> None:
    if allowed is None:
        with pytest.raises(InvalidInputError) as refused:
            parse_location(text)
        assert "secret" not in str(refused.value)
    else:
        assert parse_location(text) == allowed


def test_unencrypted_http_is_asked_for() -> None:
    with pytest.raises(InvalidInputError, match="--insecure-http"):
        parse_location("http://example.org/")
    assert parse_location("http://example.org/", insecure_http=True) == "http://example.org"
