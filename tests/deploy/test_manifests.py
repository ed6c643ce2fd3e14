"""What starts Remit elsewhere (systemd, containers, Kubernetes) agrees with what Remit is."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from remit.kernel.settings import default_settings
from tests.deploy.places import DEPLOY, TOP, program
from tests.server.running import Served, serving
from tests.support.upstream import upstream

SERVER = default_settings().server
COMPOSE = yaml.safe_load((DEPLOY / "container/compose.yaml").read_text())
CONTAINERFILE = (DEPLOY / "container/Containerfile").read_text()
UNIT = (DEPLOY / "systemd/remit.service").read_text()
MANIFESTS: dict[str, dict[str, Any]] = {
    f"{each['kind']}/{each['metadata']['name']}": each
    for name in ("namespace", "remit", "worker", "network")
    for each in yaml.safe_load_all((DEPLOY / f"kubernetes/{name}.yaml").read_text())
}
POD = MANIFESTS["StatefulSet/remit"]["spec"]["template"]["spec"]
WORKER = MANIFESTS["StatefulSet/remit-worker"]["spec"]["template"]["spec"]
KUSTOMIZATION = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text())
(CONFIG_MAP,) = KUSTOMIZATION["configMapGenerator"]
ENDED_S = 15  # at most, once the drain is over: calls that were ended are put on record


def settings_named(text: str) -> set[str]:
    return set(re.findall(r"\bREMIT_[A-Z]+__[A-Z_]+", text))


@pytest.mark.parametrize(
    "file", sorted(path for path in DEPLOY.rglob("*") if path.is_file()), ids=str
)
def test_every_setting_that_is_named_exists(file: Path) -> None:
    for variable in settings_named(file.read_text()):
        section, name = variable.removeprefix("REMIT_").lower().split("__")
        assert hasattr(getattr(default_settings(), section), name), variable


def test_everything_is_given_longer_than_the_drain() -> None:
    assert int(re.findall(r"TimeoutStopSec=(\d+)", UNIT)[0]) > SERVER.drain_s
    assert int(COMPOSE["services"]["remit"]["stop_grace_period"].rstrip("s")) > SERVER.drain_s
    settings = dict(each.split("=") for each in CONFIG_MAP["literals"])
    notice_s = float(settings["REMIT_SERVER__NOTICE_S"])
    probe = POD["containers"][0]["readinessProbe"]
    assert notice_s >= probe["periodSeconds"] + probe["timeoutSeconds"]
    assert POD["terminationGracePeriodSeconds"] > notice_s + SERVER.drain_s + ENDED_S
    drain_s = default_settings().worker.orders.drain_s
    unit = (DEPLOY / "systemd/remit-worker@.service").read_text()
    assert int(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]) > drain_s
    assert int(COMPOSE["services"]["worker"]["stop_grace_period"].rstrip("s")) > drain_s
    assert WORKER["terminationGracePeriodSeconds"] > drain_s


def test_ports_and_probes_are_the_servers() -> None:
    (container,) = POD["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": SERVER.port}]
    probes = {
        container[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "readiness", "liveness")
    }
    assert probes == {"/healthz", "/readyz"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert f"EXPOSE {SERVER.port}" in CONTAINERFILE
    for service in ("Service/remit", "Service/remit-pods"):
        (port,) = MANIFESTS[service]["spec"]["ports"]
        assert (port["port"], port["targetPort"]) == (SERVER.port, "http")
    labels = MANIFESTS["StatefulSet/remit"]["spec"]["template"]["metadata"]["labels"]
    for name in ("Service/remit", "Service/remit-pods"):
        assert MANIFESTS[name]["spec"]["selector"].items() <= labels.items()


def test_nothing_runs_as_root_or_may_become_it() -> None:
    user = re.findall(r"^USER (\d+)$", CONTAINERFILE, re.MULTILINE)
    for pod in (POD, WORKER):
        assert user == [str(pod["securityContext"]["runAsUser"])]
        for container in [*pod["initContainers"], *pod["containers"]]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            mounted = {each["name"] for each in container["volumeMounts"]}
            declared = {each["name"] for each in pod["volumes"]} | {"root"}
            assert mounted <= declared
    for service in ("remit", "worker"):
        assert COMPOSE["services"][service]["cap_drop"] == ["ALL"]
        assert COMPOSE["services"][service]["read_only"] is True


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    for path in (DEPLOY / "systemd").iterdir():
        # What is installed elsewhere is not here; systemd says no more of it than that.
        text = path.read_text().replace("/opt/remit/bin/remit", "/bin/true")
        text = text.replace("/usr/local/lib/remit/backup.sh", "/bin/true")
        (tmp_path / path.name).write_text(text)
    units = [str(tmp_path / path.name) for path in (DEPLOY / "systemd").iterdir()]
    done = subprocess.run(
        [analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if "remit" in line]
    assert (done.returncode, said) == (0, []), done.stderr


def test_pods_make_roots_of_the_host_and_of_its_tenants_from_their_keys(tmp_path: Path) -> None:
    tenants = yaml.safe_load((DEPLOY / "kubernetes/tenants/kustomization.yaml").read_text())
    patch = yaml.safe_load(tenants["patches"][0]["patch"])
    (volume,) = patch["spec"]["template"]["spec"]["volumes"]
    assert patch["metadata"]["name"] == "remit"
    assert volume["name"] in [each["name"] for each in POD["volumes"]]
    (source,) = volume["projected"]["sources"]
    files = [item["path"] for item in source["secret"]["items"]]
    for path in ["keys/ledger.key", "keys/ledger.vkey", "keys/packages.pem",
                 *(f"tenants/{path}" for path in files)]:  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    root = tmp_path / "root"
    (script,) = POD["initContainers"][0]["args"]
    script = script.replace("remit init", "echo").replace("/keys ", f"{tmp_path}/keys ")
    script = script.replace("/tenants/*", f"{tmp_path}/tenants/*")
    for _ in range(2):
        done = subprocess.run(
            ["sh", "-euc", script], env={"REMIT_ROOT": str(root), "PATH": os.defpath},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.splitlines() == [str(root), f"{root}/tenants/acme"]
        (tmp_path / "keys/ledger.key").write_text("another")
    assert (root / "HOT/keys/ledger.key").read_text() == "keys/ledger.key"  # the first one stays
    own = root / "tenants/acme"
    assert (own / "tenant.json").read_text() == "tenants/acme/tenant.json"
    assert (own / "HOT/keys/ledger.key").stat().st_mode & 0o777 == 0o600
    page = (TOP / "docs/operations/cluster.md").read_text()
    (change,) = re.findall(r"^sed '(.*)' deploy/kubernetes/worker.yaml", page, re.MULTILINE)
    done = subprocess.run(
        ["sed", change, str(DEPLOY / "kubernetes/worker.yaml")], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    made = [*yaml.safe_load_all(done.stdout)]
    assert {one["metadata"]["name"] for one in made} == {"remit-worker-acme"}
    volumes = {one["name"]: one for one in made[0]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["keys"]["secret"]["secretName"] == source["secret"]["name"]


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
