"""Using an index."""

from __future__ import annotations

import fcntl
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.packages.making import sha256

from index_tests.forging import forge_target
from index_tests.making import (
    SETTINGS,
    archive,
    client,
    fails,
    listed,
    publisher,
    root_json,
    settings,
    tree,
)
from remit.kernel.errors import InvalidInputError
from remit.packages import IncomingArchive
from remit_index import PackageIndex, find_in_indexes, open_indexes, remove_index
from remit_index.fetcher import parse_location

_ID = "PKG-EXAMPLE-001"


def find(top: Path, package_id: str = _ID, version: str | None = None, **more: str) -> str:
    """Where the package comes from."""
    found = find_in_indexes(top / "root", package_id, version, SETTINGS, **more)
    assert found.expected_id == package_id
    return found.source


def test_adding_searching_fetching(served: Path) -> None:
    file = archive(served, "PKG-OTHER-002", "0.1.0", title="Grüße ordnen")
    publisher(served).publish(file)
    index = client(served)
    given = index.add(root_json(served))
    assert (given.version, given.roles["root"].threshold) == (1, 1)
    assert listed(index) == [(_ID, "1.0.0"), ("PKG-OTHER-002", "0.1.0")]
    assert [one.package_id for one in index.search("gRÜSSE")] == ["PKG-OTHER-002"]
    assert [one.package_id for one in index.search("other-0")] == ["PKG-OTHER-002"]
    assert index.search("nothing such") == []
    (found,) = index.known().packages["PKG-OTHER-002"]
    assert (found.title, found.signed) == ("Grüße ordnen", False)
    assert (found.digest, found.length) == (sha256(file.read_bytes()), file.stat().st_size)
    expected = IncomingArchive(file.read_bytes(), b"", "index team", "PKG-OTHER-002")
    assert index.fetch("PKG-OTHER-002") == expected
    text = (served / "root" / "indexes" / "team" / "index.json").read_text()
    assert json.loads(text) == {"name": "team", "location": str(served / "served")}
    # Another process uses it.
    publisher(served).publish(archive(served, version="1.1.0"))
    assert index.search(_ID)[0].version == "1.0.0"  # nothing is fetched
    (again,) = open_indexes(served / "root", SETTINGS)
    assert (again.name, again.location) == ("team", str(served / "served"))
    assert again.fetch(_ID).data == (served / f"{_ID}-1.1.0.tar.gz").read_bytes()
    assert index.search(_ID)[0].version == "1.1.0"


def test_the_newest_is_no_prerelease(served: Path, team: PackageIndex) -> None:
    for version in ("2.0.0-rc.1", "1.10.0", "1.9.0", "1.10.0+build.7"):
        publisher(served).publish(archive(served, version=version))
    publisher(served).publish(archive(served, "PKG-YOUNG-001", "0.1.0-alpha"))
    team.refresh()
    assert [one.version for one in team.known().packages[_ID]] == [
        "2.0.0-rc.1", "1.10.0+build.7", "1.10.0", "1.9.0", "1.0.0",
    ]  # fmt: skip
    assert listed(team) == [(_ID, "1.10.0+build.7"), ("PKG-YOUNG-001", "0.1.0-alpha")]
    got = team.fetch(_ID, "2.0.0-rc.1")
    assert got.data == (served / f"{_ID}-2.0.0-rc.1.tar.gz").read_bytes()
    for wanted in ((_ID, "3.0.0"), ("PKG-NONE-001", None)):
        with fails("package_not_in_index"):
            team.fetch(*wanted)


def test_an_index_is_added_once_and_removed(served: Path, team: PackageIndex) -> None:
    before = tree(served / "root")
    with fails("index_exists"):
        client(served).add(root_json(served))
    assert tree(served / "root") == before
    for name in ("../root", "..", "", "a/b", "."):
        with pytest.raises(InvalidInputError, match="cannot be an index's name"):
            remove_index(served / "root", name, 1.0)
    remove_index(served / "root", "team", 1.0)
    assert [one.name for one in (served / "root" / "indexes").iterdir()] == [".team.lock"]
    with fails("index_not_added"):
        remove_index(served / "root", "team", 1.0)
    team.add(root_json(served))


def test_what_is_not_there_is_not_added(served: Path) -> None:
    index = client(served, location=str(served / "nowhere"))
    with fails("index_unreachable", "there is no directory"):
        index.add(root_json(served))
    assert [one.name for one in (served / "root" / "indexes").iterdir()] == [".team.lock"]
    for attempt in (index.refresh, index.known, index.search):
        with fails("index_damaged"):
            attempt()
    with fails("index_not_added"):
        PackageIndex.open(served / "root", "team", SETTINGS)
    assert open_indexes(served / "root", SETTINGS) == []
    with fails("index_not_added"):
        find(served)
    with pytest.raises(InvalidInputError):
        find(served, index="../team")


def test_local_damage_is_named_and_repaired(served: Path, team: PackageIndex) -> None:
    state = served / "root" / "indexes" / "team"
    for name in ("targets.json", "snapshot.json", "timestamp.json", "root.json"):
        for wrong in (b"", b"{}", b"\xff", b"[" * 100_000, None):
            file = (state / "current" / name).resolve()
            if wrong is None:
                file.unlink()
            else:
                file.write_bytes(wrong)
            with fails("index_damaged", "index team is damaged"):
                team.search()
            PackageIndex.open(served / "root", "team", SETTINGS).refresh()
            assert listed(team) == [(_ID, "1.0.0")]


def test_damage_to_what_was_trusted(served: Path, team: PackageIndex) -> None:
    state = served / "root" / "indexes" / "team"
    for name in ("index.json", "trusted-root.json"):
        for wrong in (b"", b"{}", b"[1]", b'{"name": "x", "location": 3}', b"\xff"):
            (state / name).write_bytes(wrong)
            with fails("index_damaged"):
                PackageIndex.open(served / "root", "team", SETTINGS).refresh()
            remove_index(served / "root", "team", 1.0)
            team.add(root_json(served))
    shutil.copytree(state, state.with_name("mine"), symlinks=True)
    with fails("index_damaged", "'team'"):
        PackageIndex.open(served / "root", "mine", SETTINGS)


def test_another_process_holds_the_lock(served: Path, team: PackageIndex) -> None:
    lock = served / "root" / "indexes" / ".team.lock"
    waiting = PackageIndex.open(served / "root", "team", settings(lock_timeout_s=0.2))
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert listed(team) == [(_ID, "1.0.0")]  # reading does not wait
        with fails("busy"):
            waiting.refresh()
    waiting.refresh()
    lock.unlink()
    lock.mkdir()
    with fails("index_damaged"):
        waiting.refresh()


def test_readers_and_refreshers_at_once(served: Path, team: PackageIndex) -> None:
    seen: list[str] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def guarded(work: Callable[[], object]) -> None:
        try:
            while not done.is_set():
                work()
        except BaseException as error:
            failed.append(error)

    refresh, read = client(served).refresh, lambda: seen.append(client(served).search()[0].version)
    threads = [threading.Thread(target=guarded, args=(work,)) for work in (refresh, refresh, read)]
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
    assert listed(team) == [(_ID, "1.5.0")]


def test_finding_in_all_of_them(served: Path, team: PackageIndex, tmp_path: Path) -> None:
    second = tmp_path / "second"
    publisher(second).create()
    publisher(second).publish(archive(second, "PKG-MORE-001"))
    more = PackageIndex(served / "root", "more", str(second / "served"), SETTINGS)
    more.add(root_json(second))
    assert find(served) == "index team"
    assert find(served, "PKG-MORE-001") == "index more"
    with fails("package_not_in_index", r"none of the indexes \(more, team\)"):
        find(served, "PKG-NONE-001")
    # The same archive in both is one package; another one of that name is not.
    publisher(second).publish(served / f"{_ID}-1.0.0.tar.gz")
    assert find(served) == "index more"
    publisher(second).publish(archive(second, _ID, "9.9.9"))
    with fails("package_in_several", r"more \(9\.9\.9\), team \(1\.0\.0\)"):
        find(served)
    assert find(served, index="team") == "index team"
    assert find(served, version="9.9.9") == "index more"
    # One that cannot be reached might have it.
    (second / "served").rename(second / "away")
    with fails("index_unreachable"):
        find(served)


def test_an_archive_under_the_name_of_another(served: Path, team: PackageIndex) -> None:
    """The publisher, or who has the targets key, signs it so."""
    data = archive(served / "x", _ID, "1.5.0").read_bytes()
    forge_target(served, f"packages/{_ID}/2.0.0.tar.gz", data)
    with fails("index_mixed", r"lists PKG-EXAMPLE-001 1\.5\.0 as 2"):
        find(served)
    forge_target(served, "packages/PKG-OTHER-001/1.5.0.tar.gz", data)
    with fails("wrong_id"):
        find(served, "PKG-OTHER-001")


def test_targets_that_are_no_packages_are_left_out(served: Path, team: PackageIndex) -> None:
    for path in (
        f"packages/{_ID}/../../x.tar.gz",
        f"packages/../{_ID}/1.0.1.tar.gz",
        f"packages/{_ID}/1.0.1.zip",
        f"packages/{_ID}/latest.tar.gz",
        f"packages/{_ID}/1.0.tar.gz",
        f"packages/{_ID}/{'9' * 5000}.0.0.tar.gz",
        "packages/pkg-example-001/1.0.1.tar.gz",
        f"packages/{_ID}/1.0.1\n.tar.gz",
        f"/packages/{_ID}/1.0.1.tar.gz",
    ):
        forge_target(served, path, b"x", write=False)
    forge_target(served, "packages/PKG-ODD-001/1.0.0.tar.gz", b"x", custom=["no", "object"])
    team.refresh()
    assert listed(team) == [(_ID, "1.0.0"), ("PKG-ODD-001", "1.0.0")]
    assert team.known().packages["PKG-ODD-001"][0].title == ""


def test_one_that_is_too_large(served: Path, team: PackageIndex) -> None:
    with fails("index_too_large"):
        client(served, compressed_bytes=100).fetch(_ID)
    with fails("index_mixed"):
        client(served, metadata_bytes=100).refresh()
    assert listed(team) == [(_ID, "1.0.0")]


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
        with pytest.raises(InvalidInputError, match="--insecure-http") as refused:
            parse_location(text)
        assert "secret" not in str(refused.value)
    else:
        assert parse_location(text) == allowed
    if text == "http://example.org/":
        assert parse_location(text, insecure_http=True) == "http://example.org"
