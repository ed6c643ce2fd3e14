"""``remit package index``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.packages.making import sha256

from index_tests.making import archive, publisher, root_json
from index_tests.test_publisher import signature
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit_index import PackageIndexError
from remit_index.commands import index

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs ``remit package index ARGUMENTS`` on a root of its own; with --json, the value."""
    root = Root(tmp_path / "root")
    root.create()

    def invoke(*arguments: object, fails: bool = False) -> Any:
        words = [str(one) for one in arguments]
        done = CliRunner().invoke(index, [*words, "--root", str(root.path)])
        assert (done.exit_code != 0) is fails, done.output
        if done.exception is not None and not isinstance(done.exception, SystemExit | RemitError):
            raise done.exception
        return done

    return invoke


def value(done: Result) -> Any:
    return json.loads(done.stdout)


def test_the_way_through(tmp_path: Path, run: Run) -> None:
    served, keys = tmp_path / "served", tmp_path / "keys"
    made = run("init", served, "--keys", keys, "--threshold", "root=2")
    assert made.stdout.strip() == str(served / "metadata" / "1.root.json")
    digest = sha256(root_json(tmp_path))
    assert digest in made.stderr
    file = archive(tmp_path)
    signature(tmp_path, file)
    other = archive(tmp_path, "PKG-OTHER-001", title="Something \x1b[31melse".replace("\x1b", ""))
    done = run("publish", served, file, other, "--keys", keys)
    assert f"PKG-EXAMPLE-001 1.0.0 signed {sha256(file.read_bytes())}" in done.stdout
    assert "PKG-OTHER-001 1.0.0 unsigned" in done.stdout
    assert "timestamp expires 2" in done.stderr
    added = run("add", "team", served, "--root-metadata", made.stdout.strip())
    assert added.stdout == f"team: {served}, 2 packages\n"
    assert digest in added.stderr
    assert added.stderr.count("  key ") == 2
    assert run("list").stdout.startswith(f"team  {served}  2 packages, valid until 2")
    assert [line.split()[:4] for line in run("search").stdout.splitlines()] == [
        ["PKG-EXAMPLE-001", "1.0.0", "signed", "team"],
        ["PKG-OTHER-001", "1.0.0", "unsigned", "team"],
    ]
    newer = archive(tmp_path, version="1.1.0")
    run("publish", served, newer, "--keys", keys)
    assert "1.1.0" not in run("search").stdout
    assert run("refresh").stdout.startswith("team: 2 packages, valid until 2")
    assert value(run("search", "an example", "--versions", "--json")) == {
        "packages": [
            {
                "index": "team",
                "package_id": "PKG-EXAMPLE-001",
                "version": one.stem.removesuffix(".tar")[16:],
                "title": "An example",
                "digest": sha256(one.read_bytes()),
                "length": one.stat().st_size,
                "signed": one is file,
                "manifest_sha256": known["manifest_sha256"],
            }
            for one, known in zip(
                (newer, file),
                value(run("search", "example", "--versions", "--json"))["packages"],
                strict=True,
            )
        ]
    }
    assert run("rotate", served, "timestamp", "--keys", keys).stdout == "timestamp has new keys\n"
    expires = value(run("renew", served, "--keys", keys, "--all", "--json"))["expires"]
    assert set(expires) == {"root", "targets", "snapshot", "timestamp"}
    run("withdraw", served, "PKG-EXAMPLE-001", "1.1.0", "--keys", keys)
    (status,) = value(run("refresh", "team", "--json"))["indexes"]
    assert (status["name"], status["packages"], status["refreshed"]) == ("team", 2, True)
    assert status["root_version"] == 3
    assert value(run("list", "--json"))["indexes"] == [
        {name: status[name] for name in status if name != "refreshed"}
    ]
    assert run("remove", "team").stdout == "team removed\n"
    assert value(run("list", "--json")) == {"indexes": []}


def test_one_index_that_fails_keeps_no_other_from_being_refreshed(tmp_path: Path, run: Run) -> None:
    for name in ("a", "b", "c"):
        top = tmp_path / name
        publisher(top).create()
        publisher(top).publish(archive(top))
        run("add", name, top / "served", "--root-metadata", top / "served/metadata/1.root.json")
        publisher(top).publish(archive(top, version="1.1.0"))
    for name in ("a", "b"):
        (tmp_path / name / "served").rename(tmp_path / name / "away")
    done = run("refresh", "--json", fails=True)
    assert isinstance(done.exception, PackageIndexError)
    assert done.exception.code == "index_unreachable"
    refreshed = [one["refreshed"] for one in value(done)["indexes"]]
    assert refreshed == [False, False, True]
    done = run("refresh", fails=True)
    assert "The index a cannot be fetched" in done.stderr
    assert "The index b cannot be fetched" in str(done.exception)
    assert done.stdout.startswith("c: 1 package, ")
    versions = [one["version"] for one in value(run("search", "--json"))["packages"]]
    assert versions == ["1.0.0", "1.0.0", "1.1.0"]
    state = tmp_path / "root" / "indexes" / "b" / "current" / "targets.json"
    state.resolve().write_bytes(b"{}")
    listed = value(run("list", "--json"))["indexes"]
    assert [bool(one["problem"]) for one in listed] == [False, True, False]


def test_what_has_expired_is_shown(tmp_path: Path, run: Run) -> None:
    publisher(tmp_path).create()
    trusted = tmp_path / "served" / "metadata" / "1.root.json"
    added = value(run("add", "team", tmp_path / "served", "--root-metadata", trusted, "--json"))
    assert (added["location"], added["packages"]) == (str(tmp_path / "served"), 0)
    assert added["root_sha256"] == sha256(trusted.read_bytes())
    assert "expired" not in run("search").stderr + run("list").stderr
    # Time passes.
    known = tmp_path / "root" / "indexes" / "team" / "current" / "timestamp.json"
    state = json.loads(known.read_bytes())
    state["signed"]["expires"] = "2026-01-01T00:00:00Z"
    known.write_text(json.dumps(state))
    assert "The metadata of team has expired" in run("search").stderr
    assert "refresh team" in run("list").stderr
    assert value(run("list", "--json"))["indexes"][0]["expired"] is True
    publisher(tmp_path, age_days=8).renew()
    done = run("refresh", fails=True)
    assert "held back from you" in str(done.exception)
    refused = run("add", "far", "http://index.invalid", "--root-metadata", trusted, fails=True)
    assert "--insecure-http" in str(refused.exception)


def test_wrong_use(tmp_path: Path, run: Run) -> None:
    served, keys = tmp_path / "served", tmp_path / "keys"
    for threshold in ("root", "root=", "root=-1", "root=²", "=1"):
        wrong = run("init", served, "--keys", keys, "--threshold", threshold, fails=True)
        assert wrong.exit_code in (1, 2)
    assert not served.exists()
    run("init", served, "--keys", served / "keys", fails=True)
    run("publish", served, "--keys", keys, fails=True)
    run("add", "team", served, fails=True)
    run("rotate", served, "boot", "--keys", keys, fails=True)
    run("refresh", "../HOT", fails=True)
    run("remove", "../HOT", fails=True)
    assert (tmp_path / "root" / "HOT").is_dir()
