"""``docs/gateway.md`` as a newcomer would follow it: every command, in a fresh directory.

The real programs run: ``remit``, its server, ``curl`` and the official SDKs. Only the providers
are played, by ``tests/support/upstream.py``. What the ``sh`` block installs is here already.

Conventions of the page: ``sh`` installs; ``console`` holds commands and what they print; ``py``
is a file, named in its first line; ``toml`` goes to the end of ``.remit/remit.toml``. A line of
an output that is ``…`` stands for any number of lines.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.gateway import RouterConfig
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.packages.distribution import Distribution
from remit.server import refusals
from tests.support.local_model import ONE_THREAD, local_weights
from tests.support.upstream import upstream

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs/gateway.md").read_text()
SERVER = (TOP / "docs/server.md").read_text()
LOCAL = "## Without a provider"
PATIENCE_S = 120
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAME = tuple(
    (re.compile(found), instead)
    for found, instead in (
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "TIME"),
        (r"date: .*", "date"),
        (r"KEY-[0-9A-Z]{16}", "KEY"),
        (r"SES-[0-9A-Z]+", "SES"),
        (r"sk-remit-[\w-]+", "SECRET"),
        (r"\b[0-9a-f]{64}\b|(?<=context_hash=)[0-9a-f]+…", "HASH"),
        (r"sha256:[0-9a-f]+", "PRICES"),
        (r"remit\.local/[0-9a-f]{16}", "LOG"),
        (r"127\.0\.0\.1:\d+", "ADDRESS"),
        (r"(latency_ms|time_to_first_token_ms)[:=] ?[\d.]+", r"\1"),
        (r'"created": ?\d+', "created"),
        (r"(content-length|retry-after): \d+", r"\1"),
        (r"Remit is installed in editable mode.*\n", ""),
        (r"(\S+/\.?\w+|alone) was created\.", "was created."),
        (r"up to \d+ entries", "up to N entries"),
        (r"Set by \S+,", "Set by USER,"),
        (r"is installed: \S+", "is installed"),
    )
)

_ID = re.compile(r"LED-([0-9a-f]{8})")
_SIZE = re.compile(r"(?<=verified: )\d+(?= entries)|(?<=checkpoint of )\d+(?= entries)")
# The page is one of an installed Remit on its own port: an editable one begins with an entry more,
# its waiver; and another port is a setting that comes into force, which is one more.
_MORE = int(Distribution.current().editable) + 1


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a ``console`` block and what stands under it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        size = next(n for n, line in enumerate(lines, 1) if not line.endswith("\\"))
        yield "\n".join(lines[:size]), "\n".join(lines[size:])


def same(text: str) -> str:
    """An output without what differs between two runs."""
    for found, instead in SAME:
        text = found.sub(instead, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def here(text: str) -> str:
    """A text of the page with the entry ids and sizes that they have here."""
    text = _SIZE.sub(lambda found: str(int(found[0]) + _MORE), text)
    return _ID.sub(lambda found: f"LED-{int(found[1], 16) + _MORE:08x}", text)


def agrees(shown: str, printed: str) -> bool:
    """Whether ``printed`` is what the page shows."""
    pattern = "".join(
        r"(?:[^\n]*\n)*" if line == "…" else re.escape(line) + r"\n"
        for line in same(here(shown)).splitlines()
    )
    return re.fullmatch(pattern, "".join(f"{x}\n" for x in same(printed).splitlines())) is not None


def told(command: str, shown: str, printed: str) -> str:
    """Why a command failed the page."""
    return f"$ {command}\n{same(printed)}\n--- the page shows:\n{same(here(shown))}"


class Newcomer:
    """Someone with a shell in an empty directory."""

    def __init__(self, folder: Path, provider: str) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("REMIT")},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OPENAI_BASE_URL": f"{provider}/v1",
            "ANTHROPIC_BASE_URL": provider,
            "REMIT_SERVER__PORT": self.port,
            **ONE_THREAD,
        }
        self.server: subprocess.Popen[str] | None = None

    def follow(self, page: str) -> Iterator[tuple[str, str, str]]:
        """Do what the page says: each command, what it should print, and what it printed."""
        for kind, body in BLOCK.findall(page):
            if kind == "toml":
                with (self.folder / ".remit/remit.toml").open("a") as file:
                    file.write(f"\n{body}")
            elif kind == "py":
                name = body.splitlines()[0].removeprefix("# ")
                assert re.fullmatch(r"\w+\.py", name), name
                (self.folder / name).write_text(self._here(body))
            elif kind == "console":
                for command, shown in commands(body):
                    run = self._serve if re.search(r"(^|\s)remit serve\b", command) else self._do
                    yield command, shown, run(command)
            else:
                assert kind == "sh", f"a block of {kind}, which nobody tries"

    def _here(self, text: str) -> str:
        return here(text.replace("127.0.0.1:4000", f"127.0.0.1:{self.port}"))

    def _do(self, command: str) -> str:
        """Run a command in the shell; what it exports stays."""
        after = self.folder.parent / "environment"
        done = subprocess.run(
            ["bash", "-c", f"{self._here(command)}\nenv -0 > {after}"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        lines = after.read_text().split("\0")
        self.env = dict(line.split("=", 1) for line in lines if line)
        return done.stdout

    def _serve(self, command: str) -> str:
        """End the server that runs, as the page says, and start this one."""
        self.stop()
        with (self.folder.parent / "server.log").open("w+") as log:
            self.server = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            assert self.server.stdout is not None
            first = self.server.stdout.readline()
            assert first, (self.folder.parent / "server.log").read_text()
            return first + self._hint(Path(log.name))

    def _hint(self, log: Path) -> str:
        """The lines for people, which come right after the one for programs."""
        self._do("curl -s --retry 20 --retry-connrefused http://127.0.0.1:4000/healthz")
        return log.read_text()

    def stop(self) -> None:
        """End the server as Ctrl-C does."""
        if self.server is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.server.pid, signal.SIGINT)
        assert self.server.stdout is not None
        with self.server, self.server.stdout:
            self.server.wait(PATIENCE_S)
        self.server = None


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "docs").symlink_to(TOP / "docs")
    with upstream() as provider:
        made = Newcomer(folder, provider.url)
        try:
            yield made
        finally:
            made.stop()


def test_the_page_does_what_it_shows(newcomer: Newcomer) -> None:
    done = 0
    for command, shown, printed in newcomer.follow(PAGE.partition(LOCAL)[0]):
        assert agrees(shown, printed), told(command, shown, printed)
        done += 1
    assert done > 20


def test_the_local_model_needs_nobody(newcomer: Newcomer) -> None:
    local_weights()
    newcomer.env["OPENAI_BASE_URL"] = newcomer.env["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:9"
    done = []
    for command, shown, printed in newcomer.follow(LOCAL + PAGE.partition(LOCAL)[2]):
        if re.match("python |remit budget", command):  # its words are its own, and so many
            assert printed.strip(), command
            assert "Traceback" not in printed, printed
        else:
            assert agrees(shown, printed), told(command, shown, printed)
        done.append(command)
    assert "python ask_local.py" in done


def test_what_is_installed_is_declared() -> None:
    (install,) = (body for kind, body in BLOCK.findall(PAGE) if kind == "sh")
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    wanted = re.search(r"'\.\[(.+?)\]'", install)
    assert wanted
    assert set(wanted[1].split(",")) <= set(project["optional-dependencies"])


def _rows(heading: str) -> dict[str, list[str]]:
    """The table under a heading, by the code in its first column."""
    text = SERVER.split(f"\n### {heading}\n", 1)[1].split("\n#", 1)[0]
    rows = (line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `"))
    return {row[0].strip().strip("`"): [cell.strip().strip("`") for cell in row] for row in rows}


@pytest.mark.parametrize(
    ("heading", "table", "outcome"),
    [
        ("Refused by Remit", refusals.REJECTED, RouteOutcome.REJECTED),
        ("Failed at the provider", refusals._FAILED, RouteOutcome.ERROR),
    ],
)
def test_the_tables_of_errors_are_those_in_the_code(
    heading: str, table: dict[str, int], outcome: RouteOutcome
) -> None:
    rows = _rows(heading)
    assert set(rows) == {code.lower() for code in table}
    for code, (_, status, openai, anthropic, _meaning) in rows.items():
        response = PromptResponse(
            content="", outcome=outcome, input_tokens=0, output_tokens=0, model_id="",
            provider_id="", latency_ms=0, timestamp="", exchange_entry_id="",
            error_code=code.upper(),
        )  # fmt: skip
        assert int(status) == refusals.status_of(response)
        for endpoint, kind in (("openai.chat", openai), ("anthropic.messages", anthropic)):
            body = refusals.refusal_body(endpoint, int(status), code, "")
            assert body["error"]["type"] == kind, (code, endpoint)


def test_the_headers_are_those_that_the_server_reads() -> None:
    from remit.server import authentication

    rows = re.findall(r"^\| (`[\w-]+`(?:, `[\w-]+`)*) \|", SERVER, re.MULTILINE)
    named = {name.strip("` ") for row in rows for name in row.split(",")}
    assert {
        name.decode() for name in authentication._WANTED - {b"content-length", b"content-type"}
    } <= named


def test_the_breakers_numbers_are_told_as_they_are() -> None:
    breaker = RouterConfig().circuit_breaker
    assert f"after {breaker.failure_threshold} failures" in SERVER
