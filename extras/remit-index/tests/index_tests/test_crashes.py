"""Killed by SIGKILL at every step; and several at once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from index_tests.crashing import work
from index_tests.making import (
    SETTINGS,
    archive,
    client,
    listed,
    publisher,
    root_json,
    version_of,
)
from remit.packages import PackageError
from remit_index import PackageIndex

_ID = "PKG-EXAMPLE-001"
OLD, NEW = [(_ID, "1.0.0")], [(_ID, "1.1.0")]


def crashed(top: Path, operation: str, least: int) -> Iterator[Path]:
    """What is left when the operation is killed, for each of its steps."""
    done = subprocess.run(
        [sys.executable, "-m", "index_tests.crashing", str(top), operation],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert steps >= least
    for step in range(1, steps + 1):
        place = top / str(step)
        index_json = place / "root" / "indexes" / "team" / "index.json"
        if index_json.exists():  # it was copied: say where the index is now
            config = {"name": "team", "location": str(place / "served")}
            index_json.write_text(json.dumps(config))
        yield place


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """An index with 1.0.0, a root that has seen it, and the archive of 1.1.0."""
    start = tmp_path / "start"
    publisher(start).create()
    publisher(start).publish(archive(start))
    client(start).add(root_json(start))
    archive(start, version="1.1.0")
    return start


@pytest.mark.parametrize(("operation", "least"), [("publish", 6), ("rotate", 12)])
def test_a_killed_publisher(tmp_path: Path, start: Path, operation: str, least: int) -> None:
    for place in crashed(tmp_path, operation, least):
        fresh = client(place, name="fresh")
        fresh.add(root_json(place))
        PackageIndex.open(place / "root", "team", SETTINGS).refresh()
        assert listed(fresh) == listed(client(place)) == OLD  # the last step publishes
        assert fresh.fetch(_ID).data == (place / f"{_ID}-1.0.0.tar.gz").read_bytes()
        # The next one goes on, and leaves nothing half written.
        work(place, operation)
        work(place, "publish")
        client(place).refresh()
        assert listed(client(place)) == NEW
        assert not list((place / "served").rglob("*.new"))
        assert not list((place / "keys").glob(".*"))
        assert len(list((place / "keys").glob("targets*.pem"))) == 1


def test_an_init_that_is_killed(tmp_path: Path) -> None:
    start = tmp_path / "start"
    start.mkdir()
    archive(start, version="1.1.0")
    for place in crashed(tmp_path, "create", 12):
        if (place / "served" / "metadata" / "timestamp.json").exists():
            with pytest.raises(PackageError):
                work(place, "create")
        else:
            work(place, "create")
        assert len(list((place / "keys").glob("*.pem"))) == 4
        work(place, "publish")
        work(place, "add")
        assert listed(client(place)) == NEW


def test_a_client_that_is_killed(tmp_path: Path, start: Path) -> None:
    publisher(start).publish(start / f"{_ID}-1.1.0.tar.gz")
    publisher(start).rotate("timestamp")
    for place in crashed(tmp_path, "refresh", 10):
        index = PackageIndex.open(place / "root", "team", SETTINGS)
        assert listed(index) in (OLD, NEW)
        index.refresh()
        assert listed(index) == NEW
        assert not list((place / "root" / "indexes" / "team" / "current").glob("tmp*"))
        shutil.rmtree(place)
    shutil.rmtree(start / "root")
    for place in crashed(tmp_path, "add", 10):
        if not (place / "root" / "indexes" / "team" / "index.json").exists():
            work(place, "add")
            left = {one.name for one in (place / "root" / "indexes").iterdir()}
            assert left == {".team.lock", "team"}
        assert listed(client(place)) == NEW


def test_publishers_at_once(tmp_path: Path) -> None:
    publisher(tmp_path).create()
    names = [f"PKG-N{number}-001" for number in range(6)]
    for name in names:
        archive(tmp_path, name)
    publishing = (
        "import sys; from pathlib import Path\n"
        "from index_tests.making import publisher\n"
        "top = Path(sys.argv[1])\n"
        "for name in sys.argv[2:]: publisher(top).publish(top / f'{name}-1.0.0.tar.gz')\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", publishing, str(tmp_path), *share])
        for share in (names[:3], names[3:])
    ]
    assert [one.wait() for one in running] == [0, 0]
    assert version_of(tmp_path, "timestamp.json") == 7
    work(tmp_path, "add")
    assert [one for one, _ in listed(client(tmp_path))] == names
