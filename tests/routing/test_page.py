"""What docs/routing.md shows is what is printed, and its snippets run."""

from __future__ import annotations

import re
from pathlib import Path

from remit.gateway import CircuitBreakerConfig
from remit.kernel.settings import load_settings
from remit.ledger import LedgerClient
from remit.routing import (
    Candidate,
    RouteOptions,
    create_thought_record_emitter,
    route_request,
)
from tests.routing.models import gateway_to
from tests.support.commands import run_remit
from tests.support.requests import openai_provider
from tests.support.roots import new_root
from tests.support.upstream import Upstream

PAGE = Path(__file__).parents[2] / "docs" / "routing.md"
SHOWN = re.compile(r"<!-- explain -->\n```text\n(.*?)```\n<!-- /explain -->", re.DOTALL)


def _shape(text: str) -> list[str]:
    """The text without ids, times and the version of the rules."""
    plain = re.sub(r"(DEC-)?[0-9a-f]{32,64}|LED-[0-9a-f]{8}|20\d\d-[0-9T:.-]+Z|in [0-9.]+ s", "#",
                   text)  # fmt: skip
    return [re.sub(r" +", " ", line.rstrip()) for line in plain.splitlines()]


def _explanation(root: Path, upstream: Upstream) -> str:
    new_root(root)
    models = (
        Candidate(
            "gpt-4.1", "openai", {"general": 76, "code": 78}, 2 * 10**9, 8 * 10**9, 1_047_576, 80,
            served_as="gpt-4.1@status=429",
        ),
        Candidate(
            "qwen-coder", "vllm", {"general": 60, "code": 82}, 10**8, 4 * 10**8, 131_072, 90,
            ("en", "de"), served_as="qwen@status=500",
        ),
        Candidate(
            "claude-haiku-4-5", "anthropic", {"general": 74, "code": 78}, 10**9, 5 * 10**9,
            200_000, 120, served_as="claude",
        ),
        Candidate("gpt-4o-mini", "openai", {"general": 60}, 15 * 10**7, 6 * 10**8, 128_000, 80),
    )  # fmt: skip
    breaker = CircuitBreakerConfig(1, 600_000, 1)
    with (
        LedgerClient(root / "ledger.db") as ledger,
        gateway_to(ledger, upstream, (), breaker=breaker) as gateway,
    ):
        for name in ("openai", "vllm", "anthropic"):
            gateway.register_provider(name, openai_provider(upstream.url))
        emitter = create_thought_record_emitter(ledger, task_id="demo", agent_id="me")
        options = RouteOptions(gateway, models, decision_emitter=emitter)
        prompt = "Write a Python function that parses a date, with a unit test"
        route_request(prompt, options)
        decision = route_request(prompt, options).decision_id
    done = run_remit("route", "explain", decision, "--root", root)
    assert done.returncode == 0, done.stderr
    return f"$ remit route explain {decision}\n{done.stdout}"


def test_the_explanation_is_what_is_printed(tmp_path: Path, upstream: Upstream) -> None:
    printed = _explanation(tmp_path / "root", upstream)
    shown = SHOWN.search(PAGE.read_text())
    assert shown is not None
    assert _shape(shown[1]) == _shape(printed), printed


def test_the_configuration_on_the_page_is_read(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    file = tmp_path / "remit.toml"
    file.write_text("\n".join(blocks))
    routes = load_settings(file, environment={}).settings.routing.routes
    assert set(routes) == {"auto", "code", "careful", "essay"}
    assert [stage.name for stage in routes["essay"].stages] == ["draft", "critique", "revise"]
