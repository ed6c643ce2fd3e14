"""A person's sign-in at a provider of another site, in a real browser."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.server.console.browsing import browser, needs_browser
from tests.server.running import serving
from tests.support.oidc import oidc_provider

pytestmark = needs_browser

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
