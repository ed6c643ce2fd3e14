"""``deploy/monitoring``: every expression names what ``/metrics`` really has."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.places import DEPLOY, PATIENCE_S, TOP, free_port, program, running
from tests.server.running import Served, serving
from tests.support.upstream import upstream
from tests.support.waiting import until

MONITORING = DEPLOY / "monitoring"
NAME = re.compile(r"\bremit_\w+")
RULES = yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((MONITORING / "grafana.json").read_text())
SHOWN = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
WRITTEN = [rule["expr"] for rule in RULES]
EVERYTHING = "\n[gateway]\nmax_retries = 0\n[gateway.fallbacks]\n'gpt-down' = ['gpt-4o-mini']\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server at which everything has happened that is counted with labels."""
    root = tmp_path_factory.mktemp("monitored") / "root"
    with upstream() as provider, serving(root, provider.url, toml=EVERYTHING) as server:
        assert server.call("openai", "hi", stream=True)[0] == 200
        assert server.call("openai", "hi", model="gpt-unpriced")[0] == 200
        assert server.call("openai", "hi [[status=400]]")[0] == 400
        assert server.call("openai", "hi", model="gpt-down@status=500")[0] >= 500
        assert server.call("openai", "[[status=500 once key=f]]", model="gpt-down")[0] == 200
        poor = server.key(usd_nano=1).key
        assert server.call("openai", "hi", token=poor)[0] == 402
        assert server.ask("GET", "/v1/models", token="sk-remit-no")[0] == 401
        yield server


def samples(served: Served) -> dict[str, set[str]]:
    """By name of a sample, all labels that any of it has."""
    status, text, _ = served.ask("GET", "/metrics", token=served.key(role="auditor").key)
    assert status == 200
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_expression_names_metrics_and_labels_that_are_there(served: Served) -> None:
    there = samples(served)
    of_prometheus = {"job", "instance"}
    names = set()
    for expression in [*SHOWN, *WRITTEN]:
        for name, selected in re.findall(r"\b(remit_\w+)(?:\{([^}]*)\})?", expression):
            assert name in there, (name, expression)
            labels = set(re.findall(r"(\w+)\s*[=!]~?", selected)) - of_prometheus
            assert labels <= there[name], (labels, expression)
            names.add(re.sub(r"_(bucket|total)$", "", name))
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            known = set().union(*(there[name] for name in NAME.findall(expression)), {"le"})
            if NAME.search(expression):
                assert {each.strip() for each in grouped.split(",")} <= known, expression
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert all(label in target["expr"] for label in shown), target
    families = {re.sub(r"_(bucket|total|count|sum|created)$", "", name) for name in there}
    assert families - names <= set(), "the dashboard leaves these out"


def test_promtool_accepts_rules_and_expressions(tmp_path: Path) -> None:
    promtool = program("promtool")
    variables = {"$job": ".*", "$__rate_interval": "1m"}
    written = []
    for number, expression in enumerate(SHOWN):
        for name, value in variables.items():
            expression = expression.replace(name, value)
        written.append({"record": f"shown:{number}", "expr": expression})
    shown = tmp_path / "shown.yaml"
    shown.write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": written}]}))
    (tmp_path / "remit.key").write_text("x")
    for name in ("prometheus.yaml", "rules.yaml"):
        (tmp_path / name).write_text((MONITORING / name).read_text())
    for command in (
        ["check", "rules", str(shown)],
        ["test", "rules", str(MONITORING / "rules.test.yaml")],
        ["check", "config", str(tmp_path / "prometheus.yaml")],
    ):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_prometheus_scrapes_it(served: Served, tmp_path: Path) -> None:
    prometheus, promtool = program("prometheus"), program("promtool")
    settings = (MONITORING / "prometheus.yaml").read_text()
    changes = {
        "127.0.0.1:4000": served.url.removeprefix("http://"),
        "interval: 15s": "interval: 1s",
    }
    for old, new in changes.items():
        assert old in settings
        settings = settings.replace(old, new)
    (tmp_path / "prometheus.yaml").write_text(settings)
    (tmp_path / "rules.yaml").write_text((MONITORING / "rules.yaml").read_text())
    (tmp_path / "remit.key").write_text(served.key(role="auditor").key)
    url = f"http://127.0.0.1:{free_port()}"
    command = [prometheus, "--config.file", str(tmp_path / "prometheus.yaml"),
               "--storage.tsdb.path", str(tmp_path / "data"),
               "--web.listen-address", url.removeprefix("http://")]  # fmt: skip

    def ask(expression: str) -> str:
        return subprocess.run(
            [promtool, "query", "instant", url, expression],
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        ).stdout.strip()  # fmt: skip

    with running(command, tmp_path / "log", tmp_path):
        until(lambda: ask('up{job="remit"} == 1'), 60)
        found = ask("sum(remit_calls_total)")
    assert re.search(r"=> [1-9]", found), found


def test_alerts_lead_to_pages_that_exist() -> None:
    for rule in RULES:
        if "alert" not in rule:
            continue
        page, _, heading = rule["annotations"]["page"].partition("#")
        text = (TOP / page).read_text()
        headings = [
            re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in text.splitlines()
            if line.startswith("#")
        ]
        assert not heading or heading in headings, rule["alert"]
