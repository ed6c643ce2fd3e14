"""A real browser: Debian's Chromium driven by Playwright, and axe inside of it."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(
    (found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None
)
WIDTHS = (360, 390, 768, 1280, 1920)

needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no chromium on the PATH")


@contextlib.contextmanager
def browser(**options: Any) -> Iterator[Any]:
    """A browser's context that has failed the test at its end if a page complained."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        context = running.new_context(**options)
        context.set_default_timeout(30_000)
        complaints: list[str] = []
        context.on("console", lambda said: said.type in ("error", "warning")
                   and complaints.append(f"{said.page.url}: {said.text}"))  # fmt: skip
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        yield context
        running.close()
        assert not complaints


def sign_in(context: Any, url: str, key: str) -> Any:
    """A page of somebody who signed in by the form."""
    page = context.new_page()
    page.goto(url)
    page.get_by_label("Virtual key").fill(key)
    page.locator("main").get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Now", exact=True).wait_for()
    return page


def violations(page: Any) -> list[Any]:
    """What axe finds: rule, and the places."""
    axe = pytest.importorskip("axe_playwright_python")
    (script,) = Path(axe.__path__[0]).rglob("axe.min.js")
    run = (
        f"{script.read_text('utf-8')};axe.run().then(found => JSON.stringify("
        "found.violations.map(one => [one.id, one.nodes.map(node => node.target.join(' '))])))"
    )
    # Past the page's policy, as a debugger is: the page itself takes no such script.
    session = page.context.new_cdp_session(page)
    told = session.send(
        "Runtime.evaluate", {"expression": run, "awaitPromise": True, "returnByValue": True}
    )
    found: list[Any] = json.loads(told["result"]["value"])
    return found
