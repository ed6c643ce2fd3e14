"""Chromium, driven over its debugging pipe: nothing to install but the browser."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import pytest

__all__ = ["Browser", "find_browser", "needs_browser"]

_NAMES = ("chromium", "google-chrome", "chromium-browser")
_WAIT_S = 120.0


def find_browser() -> str | None:
    """The browser on the PATH, if there is one."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


needs_browser = pytest.mark.skipif(find_browser() is None, reason="there is no chromium")


class Browser:
    """One headless browser with one page.

    Attributes:
        complaints: what the page logged, raised or was refused, since it was opened.
        requests: the URLs that it asked for, its own left out.
    """

    def __init__(self, profile: Path, *options: str) -> None:
        program = find_browser()
        assert program
        ours, theirs = os.pipe(), os.pipe()  # theirs is what the browser writes

        def connect() -> None:  # the browser reads 3 and writes 4
            read, write = os.dup(ours[0]), os.dup(theirs[1])
            os.dup2(read, 3)
            os.dup2(write, 4)

        self._process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-quic", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={profile}", *options, "about:blank"],
            preexec_fn=connect, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(ours[0])
        os.close(theirs[1])
        self._write, self._read = ours[1], theirs[0]
        self._number = 0
        self._rest = b""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._url = ""
        targets = self._call("Target.getTargets", session="")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = self._call("Target.attachToTarget", session="", targetId=page, flatten=True)
        self._session = str(attached["sessionId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._write)
        os.close(self._read)

    def open(
        self, url: str, *, width: int = 1280, dark: bool = False, scripts: bool = True
    ) -> None:
        """Open a page and wait until it is loaded."""
        self._call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        ])  # fmt: skip
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                   deviceScaleFactor=1, mobile=False)  # fmt: skip
        self.complaints, self.requests, self._url = [], [], url
        self._call("Page.navigate", url=url)
        end = time.monotonic() + _WAIT_S
        while time.monotonic() < end and not self._loaded:
            self._receive(end)
        assert self._loaded, "the page did not load"

    _loaded = False

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise's when it is there."""
        found = self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until a JavaScript expression is true; gives its value."""
        end = time.monotonic() + _WAIT_S
        while not (value := self.run(expression)):
            assert time.monotonic() < end, f"{expression} did not become true"
            time.sleep(0.02)
        return value

    def picture(self, path: Path) -> None:
        """A picture of the whole page, however high it is."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, *, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is None:
            message["sessionId"] = self._session
        if method == "Page.navigate":
            self._loaded = False
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _WAIT_S
        while True:
            answer = self._receive(end)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded":
                self.complaints.append(json.dumps(params))
            case "Network.requestWillBeSent":
                if (url := params["request"]["url"]) != self._url:
                    self.requests.append(url)
