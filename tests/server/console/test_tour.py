"""The console in a real browser: what a person does with it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import Identity
from remit.kernel.loops import run_blocking
from remit.learning.proposals import Change, Learner
from remit.runtime import Conversation, Runtime
from tests.learning.proposals.conftest import gain
from tests.server.console.browsing import WIDTHS, browser, needs_browser, sign_in, violations
from tests.server.console.client import VIEWS
from tests.server.running import Served, serving
from tests.server.test_approvals import ASKS, PAID
from tests.support.agents import anthropic_runtime
from tests.support.oidc import oidc_provider
from tests.support.upstream import Upstream

pytestmark = needs_browser

FALLBACKS = """
[gateway]
retry_base_ms = 5
retry_max_ms = 50
[gateway.fallbacks]
"openai/gpt-4o@status=500" = ["openai/gpt-4o-mini"]
"""


@dataclass
class Shop:
    """A server, and an agent of the same root that waits for a refund to be approved."""

    served: Served
    runtime: Runtime
    conversation: Conversation[str]
    refunds: list[int]
    exchange: str = ""
    proposal: str = ""


@contextmanager
def _opened(upstream: Upstream, root: Path, patch: pytest.MonkeyPatch) -> Iterator[Shop]:
    refunds: list[int] = []

    def refund(order: int) -> str:
        """Pay an order back."""
        refunds.append(order)
        return "paid back"

    def script(body: dict[str, Any]) -> Any:
        last = body["messages"][-1]["content"]
        heard = isinstance(last, list) and last[0]["type"] == "tool_result"
        answer = PAID if heard else ASKS
        return answer(body) if callable(answer) else answer

    with (
        serving(root, upstream.url, toml=FALLBACKS) as served,
        anthropic_runtime(root, patch, script) as (runtime, _),
    ):
        agent = runtime.agent("clerk", tools=[refund], approve=["refund"])
        conversation = agent.session()
        conversation.turn("refund order 12")
        made = Shop(served, runtime, conversation, refunds)
        status, raw, _ = served.call("openai", "fall back, please", model="gpt-4o@status=500")
        assert status == 200, raw
        calls = list(served.ledger.query(event_type="EXCHANGE"))
        made.exchange = calls[-1].id
        learner = Learner(runtime.root, runtime.ledger, runtime.loaded,
                          Identity("otto", "operator", key_id="key-otto"))  # fmt: skip
        one = learner.propose(
            Change("prompt", contract_id="PRC-EXECUTE-001", additions=["State the unit."]),
            evidence=[calls[0].id, calls[1].id], predicted=gain(), replay={"held_out": 400},
            reason="Units are missing.",
        )  # fmt: skip
        made.proposal = one.proposal_id
        yield made


@pytest.fixture
def shop(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A shop whose refund is decided."""
    with _opened(upstream, tmp_path / "root", monkeypatch) as made:
        yield made


@pytest.fixture(scope="module")
def shown(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop that is only looked at."""
    with (
        pytest.MonkeyPatch.context() as patch,
        _opened(upstream, tmp_path_factory.mktemp("shown") / "root", patch) as made,
    ):
        yield made


def test_a_tour(shop: Shop) -> None:
    served = shop.served
    operator, admin = (served.key(role=role).key for role in ("operator", "admin"))
    with browser() as context:
        page = sign_in(context, served.url, operator)

        # A refund waits: the exact arguments are looked at, and it is approved.
        page.get_by_role("link", name="Approvals").click()
        card = page.locator("article", has_text="refund")
        assert '"order": 12' in card.inner_text()
        card.get_by_label("Reason").fill("a good customer")
        card.get_by_role("button", name="Approve").click()
        page.get_by_text("granted").first.wait_for()
        run_blocking(shop.conversation.aresume())  # the browser has a loop in this thread
        assert shop.refunds == [12]

        # Live: a call appears without a reload.
        page.get_by_role("link", name="Now").click()
        page.get_by_text("Calls and alarms are live").wait_for()
        served.call("openai", "look at me", session="SES-TOURTOUR")
        (seen,) = served.entries("EXCHANGE", "SES-TOURTOUR")
        page.get_by_role("link", name=seen.id).wait_for()

        # From the prompt to its proof, which this browser checks by itself.
        page.get_by_role("link", name=seen.id).click()
        page.get_by_text("look at me").first.wait_for()
        page.get_by_role("link", name="verify in this browser").click()
        page.get_by_text("Verified in this browser").wait_for()

        # Why a call went elsewhere.
        page.get_by_role("link", name="Why this model").click()
        page.get_by_role("row", name="fallback").first.get_by_role("link").click()
        page.get_by_role("heading", name="Skipped models").wait_for()

        # An operator may not adopt; an admin may, and may go back.
        page.goto(f"{served.url}/console/proposals/{shop.proposal}")
        page.get_by_text("State the unit.").first.wait_for(), page.inner_text("main")
        used = shop.served.ledger.select("SELECT key_id, name FROM usage_keys")
        assert {f"1 from {name}" for _, name in used} & {*page.locator(".why li").all_inner_texts()}
        assert not any(key_id in page.inner_text("main") for key_id, _ in used)
        assert page.get_by_role("button", name="Adopt").count() == 0
        page.get_by_role("button", name="Sign out").click()
    with browser() as context:
        page = sign_in(context, served.url, admin)
        page.goto(f"{served.url}/console/proposals/{shop.proposal}")
        page.get_by_label("Reason").fill("units were missing")
        page.get_by_role("button", name="Adopt").click()
        page.get_by_text("adopted", exact=True).first.wait_for()
        page.get_by_label("Reason").fill("answers became longer")
        page.get_by_role("button", name="Roll back").click()
        page.get_by_text("rolled back", exact=True).first.wait_for()


@dataclass
class Clicks:
    """An operator's page, and the clicks since the start page; typed text is no click."""

    page: Any
    url: str
    count: int = 0

    def begin(self) -> None:
        self.page.goto(self.url)
        self.count = 0

    def click(self, target: Any) -> None:
        self.count += 1
        assert self.count <= 2
        target.click()


def test_six_questions_take_an_operator_two_clicks_each(shop: Shop) -> None:
    served = shop.served
    poor = served.key(models=("claude*",))
    refused = served.call("openai", "too dear", token=poor.key)
    assert refused[0] == 403
    served.call("openai", "my teapot never came", session="SES-TEAPOT22")
    with browser(timezone_id="Asia/Kathmandu") as context:
        page = sign_in(context, served.url, served.key(role="operator").key)
        asked = Clicks(page, served.url)
        main = page.locator("main")

        # Is the record sound? (The first check runs the gates.)
        asked.begin()
        asked.click(page.get_by_role("link", name="Verify"))
        asked.click(page.get_by_role("button", name="Check all gates now"))
        main.get_by_text("The record is sound up to LED-").wait_for()
        main.get_by_text("no witness has cosigned it").wait_for()

        # Who spent most, and on which model? The row of yesterday has the same link.
        asked.begin()
        asked.click(main.get_by_role("row", name="Today").get_by_role("link").last)
        main.get_by_role("heading", name="Spend").wait_for()
        # The runtime's clerk has no key, and its model costs most.
        assert "claude" in page.locator(".legend span").first.inner_text()
        first = main.locator("tbody tr").first.locator("td")
        assert first.first.inner_text() == "(none)"
        assert first.nth(1).locator("data").get_attribute("title").startswith("$0.0")

        # Why this fallback?
        asked.begin()
        asked.click(page.get_by_role("link", name="Why this model"))
        asked.click(page.get_by_role("row", name="fallback").first.get_by_role("link"))
        main.get_by_role("heading", name="Skipped models").wait_for()

        # What was refused, and why?
        asked.begin()
        row = main.get_by_role("row", name=poor.name)
        assert "the model is not allowed" in row.inner_text()
        asked.click(row.get_by_role("link"))
        main.get_by_role("link", name="Link to this list").wait_for()
        assert main.locator("tbody tr").count() == 1

        # Find a conversation by a word.
        asked.begin()
        page.get_by_role("search").get_by_role("textbox").fill("teapot")
        page.keyboard.press("Enter")
        asked.click(main.get_by_role("link", name="SES-TEAPOT22"))
        main.get_by_text("my teapot never came").first.wait_for()
        # Times are the reader's: Kathmandu has an offset of its own.
        main.locator("time", has_text="GMT+5:45").first.wait_for()

        # Approve a refund.
        asked.begin()
        asked.click(page.get_by_role("link", name="Approvals"))
        asked.click(main.get_by_role("button", name="Approve").first)
        main.get_by_text("granted").first.wait_for()
    run_blocking(shop.conversation.aresume())
    assert shop.refunds == [12]


CUT = (
    "[...document.querySelectorAll('.wide')].filter(one => one.scrollWidth > one.clientWidth)"
    ".map(one => one.ariaLabel)"
)
"""Lists the tables that a reader must scroll sideways."""

SMALL = (
    "[...document.querySelectorAll('main :is(a:not(.hint a), button, select, summary)')]"
    ".filter(one => one.checkVisibility() && one.getBoundingClientRect().height < 24)"
    ".map(one => one.outerHTML)"
)
"""Lists links, buttons and lists that are too low for a finger; links in sentences may be."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible_and_fits(shown: Shop, scheme: str) -> None:
    served = shown.served
    session = shown.conversation.session_id
    pages = [*VIEWS, f"/console/sessions/{session}", f"/console/journey/{shown.exchange}",
             f"/console/why/{shown.exchange}", f"/console/verify/{shown.exchange}",
             f"/console/proposals/{shown.proposal}"]  # fmt: skip
    wrong = []
    with browser(color_scheme=scheme) as context:
        page = sign_in(context, served.url, served.key(role="operator").key)
        for path in pages:
            page.goto(served.url + path)
            wrong += [(path, one) for one in violations(page)]
            for width in WIDTHS if scheme == "light" else ():  # Colours change no width.
                page.set_viewport_size({"width": width, "height": 900})
                wide = page.evaluate("document.documentElement.scrollWidth")
                wrong += [(path, width, wide)] if wide > width else []
                if width < 400:
                    wrong += [(path, width, one) for one in page.evaluate(CUT)]
                    wrong += [(path, width, one) for one in page.evaluate(SMALL)]
                if width == WIDTHS[0]:  # The style of 390 pixels is the same.
                    wrong += [(path, width, one) for one in violations(page)]
    assert wrong == []


def test_every_view_reads_without_scripts(shown: Shop) -> None:
    served = shown.served
    with browser(java_script_enabled=False) as context:
        page = sign_in(context, served.url, served.key(role="operator").key)
        for path in VIEWS:
            page.goto(served.url + path)
            assert page.locator("main h1").inner_text()
            assert len(page.locator("main").inner_text()) > 40
        page.goto(f"{served.url}/console/verify/{shown.exchange}")
        page.get_by_text("scripts are disabled").wait_for()


def test_a_record_with_one_byte_changed_is_not_verified(shown: Shop) -> None:
    served = shown.served
    with browser() as context:

        def changed(route: Any) -> None:
            answer = route.fetch()
            body = answer.text()
            found = body.index("SUCCESS", body.index('id="bundle"'))
            route.fulfill(response=answer, body=body[:found] + "SUCCESZ" + body[found + 7 :])

        page = sign_in(context, served.url, served.key(role="auditor").key)
        success = next(one for one in served.ledger.query(event_type="EXCHANGE", outcome="success"))
        page.route(f"**/console/verify/{success.id}", changed)
        page.goto(f"{served.url}/console/verify/{success.id}")
        page.get_by_text("Not verified").wait_for()
        assert page.get_by_text("Verified in this browser").count() == 0


NO_UPSTREAM = "http://127.0.0.1:9"


def test_a_person_signs_in_at_another_site_and_out(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    public = f"http://localhost:{port}"
    with oidc_provider() as provider:
        provider.redirect_uri = f"{public}/console/oidc/callback"
        provider.client_secret = ""
        toml = (
            f'[server.oidc]\nissuer = "{provider.url}"\nclient_id = "{provider.client_id}"\n'
            f'public_url = "{public}"\n[server.oidc.roles]\n"ops" = "operator"\n'
        )
        with (
            serving(tmp_path / "root", NO_UPSTREAM, "--port", str(port), toml=toml),
            browser() as context,
        ):
            page = context.new_page()
            page.goto(f"{public}/console/spend?by=user")
            page.get_by_role("link", name="Sign in with").click()
            page.get_by_role("link", name="Allow").click()  # from one site to the other
            page.get_by_role("heading", name="Spend").wait_for()
            assert page.url == f"{public}/console/spend?by=user"
            assert "ann@example.org" in page.inner_text("header")
            (login,) = context.cookies()  # that of the sign-in is gone
            assert login["httpOnly"]
            assert login["sameSite"] == "Lax"
            page.get_by_role("button", name="Sign out").click()
            page.get_by_label("Virtual key").wait_for()
            assert context.cookies() == []
