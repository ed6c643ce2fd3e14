"""``docs/operations/backup.md`` as an operator follows it: every command, with calls under way.

The page's blocks are read as those of ``docs/gateway.md`` are (tests/docs/test_gateway_page.py).
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from remit.ledger import LedgerClient
from tests.deploy.places import DEPLOY, TOP
from tests.docs.test_gateway_page import Newcomer, agrees, told
from tests.server.running import Served, serving
from tests.support.postgres import PostgresServer
from tests.support.upstream import Upstream, upstream

PAGE = (TOP / "docs/operations/backup.md").read_text()
SQLITE, POSTGRESQL = PAGE.split("\n## SQLite\n")[1].split("\n## PostgreSQL\n")
BACKUP, LOST, ALL_LOST = SQLITE.split("\n### ")
DUMP, RESTORE = POSTGRESQL.split("To restore a dump")


class Operator(Newcomer):
    """A newcomer whose machine lies in a directory."""

    def __init__(self, place: Path, provider: str) -> None:
        super().__init__(place, provider)
        self.place = place
        for name in ("var/lib/remit", "var/backups/remit", "mnt/elsewhere"):
            (place / name).mkdir(parents=True)
        (place / "deploy").symlink_to(DEPLOY)
        self.root = place / "var/lib/remit/root"
        self.env["REMIT_ROOT"] = str(self.root)

    def _here(self, text: str) -> str:
        for name in ("/var/lib/remit", "/var/backups/remit", "/mnt/elsewhere"):
            text = text.replace(name, f"{self.place}{name}")
        return text

    def does(self, part: str) -> int:
        """Follow a part of the page; how many commands it had."""
        done = 0
        for command, shown, printed in self.follow(part.replace("```text", "```toml-not-ours")):
            printed = printed.replace(str(self.place), "")
            shown, printed = _same(shown), _same(printed)
            assert agrees(shown, printed), told(command, shown, printed)
            done += 1
        return done

    def follow(self, page: str) -> Iterator[tuple[str, str, str]]:
        keep = [block for block in page.split("```") if block.startswith("console\n")]
        return super().follow("".join(f"```{block}```\n" for block in keep))


def _same(text: str) -> str:
    lines = []
    for line in text.splitlines():
        for start in ("verified: ", "NOT VERIFIED: "):
            line = start + "N" if line.startswith(start) else line
        lines.append("/var/backups/remit/TIME" if line.startswith("/var/backups/") else line)
    return "\n".join(lines)


class Caller:
    """Calls the server one after the other until the block ends."""

    def __init__(self, served: Served) -> None:
        self.answers: list[int] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(served,))

    def _run(self, served: Served) -> None:
        while not self._end.is_set():
            self.answers.append(served.call("openai", "hi")[0])

    def __enter__(self) -> Caller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@pytest.fixture(scope="module")
def provider() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


def entries(root: Path) -> int:
    with LedgerClient(root / "ledger.db") as ledger:
        return ledger.count()


def backed_up(operator: Operator, provider: Upstream) -> None:
    """A backup while calls run, more calls, and a checkpoint elsewhere that covers them."""
    with serving(operator.root, provider.url) as served:
        backup, checkpoint = BACKUP.split("For hourly backups")
        with Caller(served) as caller:
            assert operator.does(backup) == 2
        assert caller.answers
        assert set(caller.answers) == {200}
        assert served.call("openai", "after the backup")[0] == 200
        assert operator.does(checkpoint) == 1


def goes_on(operator: Operator, provider: Upstream) -> None:
    """The restored root answers calls, and says on record that it is a fork."""
    with serving(operator.root, provider.url) as served:
        assert served.call("openai", "and on")[0] == 200
        (forked,) = [
            entry for entry in served.ledger.query(event_type="CONFIG_CHANGED")
            if "fork" in entry.metadata
        ]  # fmt: skip
        assert forked.metadata["fork"]["lost_entries"] > 0


def test_sqlite_the_database_is_lost(provider: Upstream, tmp_path: Path) -> None:
    operator = Operator(tmp_path / "machine", provider.url)
    backed_up(operator, provider)
    had = entries(operator.root)
    assert operator.does(LOST) >= 7
    assert entries(operator.root) < had + 1
    goes_on(operator, provider)


def test_sqlite_everything_is_lost(provider: Upstream, tmp_path: Path) -> None:
    operator = Operator(tmp_path / "machine", provider.url)
    backed_up(operator, provider)
    assert operator.does(ALL_LOST) == 4
    assert operator.does(LOST[LOST.index("The output names") :]) == 3
    goes_on(operator, provider)


def test_postgresql_from_a_dump(provider: Upstream, tmp_path: Path) -> None:
    # Not below pytest's directory: the database's server is another user.
    place = Path(tempfile.mkdtemp(prefix="remit-backup-"))
    database = PostgresServer(place / "data")
    try:
        operator = Operator(tmp_path / "machine", provider.url)
        database.execute("CREATE DATABASE remit")
        parts = urlsplit(database.url)
        url = parts._replace(path="/remit").geturl()
        operator.env.update(
            REMIT_DATABASE_URL=url, MAINTENANCE_URL=database.url,
            PATH=f"{database.programs}:{operator.env['PATH']}",
        )  # fmt: skip
        with serving(operator.root, provider.url, database=url) as served:
            dump, checkpoint = _split(DUMP, "$ remit ledger checkpoint")
            with Caller(served) as caller:
                assert operator.does(dump) == 2
            assert set(caller.answers) == {200}
            assert served.call("openai", "after the dump")[0] == 200
            assert operator.does(checkpoint) == 1
        assert operator.does(RESTORE) == 5
        with serving(operator.root, provider.url, database=url) as served:
            assert served.call("openai", "and on")[0] == 200
    finally:
        database.stop()
        shutil.rmtree(place, ignore_errors=True)


def _split(part: str, at: str) -> tuple[str, str]:
    """A block cut in two before a command."""
    before, after = part.split(at)
    return f"{before}```\n", f"```console\n{at}{after}"
