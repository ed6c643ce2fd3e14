"""Claude Code signs in with its own ``/login``, works, and its person is billed."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.clients.programs.test_programs import BIN
from tests.server.console.test_oidc import CALLBACK, PUBLIC, SECRET, settings
from tests.server.running import serving
from tests.server.test_device_sign_in import FORM, MORE, ROLES, command, decide
from tests.support.oidc import ANN, oidc_provider
from tests.support.strict.running import running

# Claude Code reads a company's settings from /etc alone: it gets a copy of /etc in a namespace.
_WITH_ETC = ("unshare", "-rm", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"')
_CONTROLS = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b\][^\x07]*\x07")
_CODE = re.compile("[B-Z]{4}(?:-[B-Z]{4}){2}")
_LONG_S = 100
_UNHEARD_S = 5


class Terminal:
    """A program in a terminal of its own.

    Args:
        arguments: the program and its arguments.
        place: its working directory.
        variables: all of its environment variables.
    """

    def __init__(self, arguments: list[str], place: Path, variables: dict[str, str]) -> None:
        self._shown = b""
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(place)
            os.execvpe(arguments[0], arguments, variables)

    def wait(self, words: str, keys: str = "") -> str:
        """Press keys, and return the text shown since the last call, once it matches a pattern.

        A program may show a question before it listens for the answer. So the keys are pressed
        again as long as nothing at all is shown in reply.
        """
        ends = time.monotonic() + _LONG_S
        again = 0.0
        while time.monotonic() < ends:
            text = _CONTROLS.sub(b" ", self._shown).decode("utf-8", "replace")
            if re.search(words, re.sub(r"\s+", " ", text)):
                self._shown = b""
                return text
            if keys and not self._shown and time.monotonic() >= again:
                os.write(self._terminal, keys.encode())
                again = time.monotonic() + _UNHEARD_S
            if select.select([self._terminal], [], [], 0.2)[0]:
                self._shown += os.read(self._terminal, 65536)
        pytest.fail(f"The terminal never showed {words!r}, but {text[-2000:]!r}")


@contextmanager
def _terminal(*given: object) -> Iterator[Terminal]:
    opened = Terminal(*given)  # type: ignore[arg-type]
    try:
        yield opened
    finally:
        os.kill(opened.pid, signal.SIGKILL)
        os.waitpid(opened.pid, 0)


def test_claude_code_signs_in_and_its_person_is_billed(tmp_path: Path) -> None:
    claude = BIN / "claude"
    if not claude.exists():
        pytest.skip("Claude Code is not installed")
    home, work, etc = tmp_path / "home", tmp_path / "work", tmp_path / "etc"
    home.mkdir()
    work.mkdir()
    (etc / "claude-code").mkdir(parents=True)
    # What only root may read stays behind.
    subprocess.run(["cp", "-R", "/etc/.", etc], check=False, capture_output=True)
    if subprocess.run([*_WITH_ETC, etc, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine has no mount namespaces")
    # The first start asks for a theme and asks Anthropic's servers whether they can be reached.
    seen = {"hasCompletedOnboarding": True,
            "projects": {str(work): {"hasTrustDialogAccepted": True}}}  # fmt: skip
    (home / ".claude.json").write_text(json.dumps(seen))
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("ANTHROPIC_", "CLAUDE"))}  # fmt: skip
    variables = {**kept, "HOME": str(home), "PWD": str(work), "TERM": "xterm-256color",
                 "BROWSER": "true", "DISABLE_AUTOUPDATER": "1"}  # fmt: skip
    started = [*_WITH_ETC, str(etc), str(claude)]
    with running() as url, oidc_provider() as provider:
        provider.redirect_uri = f"{PUBLIC}{CALLBACK}"
        provider.client_secret = SECRET
        with serving(
            tmp_path / "root", url, toml=settings(provider, MORE, ROLES),
            environment={"REMIT_SERVER__OIDC__CLIENT_SECRET": SECRET},
        ) as served:  # fmt: skip
            command(served, "budget", "set", "--team", "platform", "--usd", "5")
            managed = {"forceLoginMethod": "gateway", "forceLoginGatewayUrl": served.url}
            (etc / "claude-code" / "managed-settings.json").write_text(json.dumps(managed))
            with _terminal(started, work, variables) as terminal:
                terminal.wait("/login")
                terminal.wait("Sign in", "/login")
                terminal.wait("Enter to connect", "\r")
                terminal.wait("trust this gateway", "\r")
                found = _CODE.search(terminal.wait(_CODE.pattern, "1"))
                assert found is not None
                device = SimpleNamespace(
                    issued={"user_code": found[0]}, page=f"/console/device?user_code={found[0]}"
                )
                shown = decide(served, provider, device, "approve")  # type: ignore[arg-type]
                assert "is signed in" in shown.text
                terminal.wait("Connected to")
            done = subprocess.run(
                [*started, "-p", "Make the file hello.txt that says good morning",
                 "--permission-mode", "acceptEdits"],
                cwd=work, env=variables, check=False, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=_LONG_S,
            )  # fmt: skip
            assert (done.returncode, done.stderr) == (0, ""), done
            assert (work / "hello.txt").read_text().strip() == "good morning"
            billed = command(served, "usage", "--by", "user")
            assert ANN["email"] in billed
            assert ANN["sub"] in billed
            assert list(served.ledger.query(event_type="PROMPT_REJECTED")) == []
            assert "WARNING" not in served.errors.read_text()


def test_the_gateway_serves_what_claude_codes_own_contract_describes(tmp_path: Path) -> None:
    """Claude Code contains a gateway of its own, whose ``GET /protocol`` is the contract."""
    program = (BIN / "claude").resolve()
    if not program.exists():
        pytest.skip("Claude Code is not installed")
    found = re.search(
        rb"# Claude Code gateway protocol\n.*?[^\\]`", program.read_bytes(), re.DOTALL
    )
    assert found is not None
    contract = found[0].decode().replace("\\`", "`")
    asked = {
        (method, path)
        for line in re.findall(r"`(?:GET|POST)[^`]+`[^(]*", contract)
        for method in re.match(r"`([A-Z/]+)", line)[1].split("/")  # type: ignore[index]
        for path in re.findall(r"(?<=[ `])/[\w./-]+", line)
    }
    assert len(asked) >= 8, asked
    with running() as url, oidc_provider() as provider, serving(
        tmp_path / "root", url, toml=settings(provider, MORE, ROLES),
        environment={"REMIT_SERVER__OIDC__CLIENT_SECRET": SECRET},
    ) as served:  # fmt: skip
        own = served.ask("GET", "/protocol", token="")[1].decode()
        for method, path in asked:
            status, raw, _ = served.ask(method, path, b"{}" if method == "POST" else None,
                                        token="")  # fmt: skip
            assert path in own, path
            assert status == (200 if path.startswith("/.well-known") else 401), (path, status)
            if status == 401:
                assert json.loads(raw)["error"]["type"] == "authentication_error"
        metadata = json.loads(served.ask("GET", "/.well-known/oauth-authorization-server",
                                         token="")[1])  # fmt: skip
        assert "authorization_endpoint" not in metadata
        status, raw, _ = served.ask("POST", "/oauth/device_authorization", b"", token="")
        issued = json.loads(raw)
        example = contract.partition("## Device authorization")[2].partition("## ")[0]
        assert issued.keys() == set(re.findall(r'"(\w+)":', example))
        assert len(issued["device_code"]) * 6 >= 256
        assert set(issued["user_code"]) <= set("BCDFGHJKLMNPQRSTVWXZ-")
        form = "grant_type=urn:ietf:params:oauth:grant-type:device_code&device_code="
        status, raw, _ = served.ask("POST", "/oauth/token", (form + issued["device_code"]).encode(),
                                    token="", headers=FORM)  # fmt: skip
        assert (status, json.loads(raw)["error"]) == (400, "authorization_pending")
