"""What starts Remit elsewhere (systemd, containers, Kubernetes) agrees with what Remit is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from remit.kernel.settings import default_settings
from tests.deploy.places import DEPLOY, TOP, program

SERVER = default_settings().server
COMPOSE = yaml.safe_load((DEPLOY / "container/compose.yaml").read_text())
CONTAINERFILE = (DEPLOY / "container/Containerfile").read_text()
UNIT = (DEPLOY / "systemd/remit.service").read_text()
MANIFESTS: dict[str, dict[str, Any]] = {
    f"{each['kind']}/{each['metadata']['name']}": each
    for name in ("namespace", "remit", "network")
    for each in yaml.safe_load_all((DEPLOY / f"kubernetes/{name}.yaml").read_text())
}
POD = MANIFESTS["StatefulSet/remit"]["spec"]["template"]["spec"]


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
    (container,) = POD["containers"]
    (_, waits) = container["lifecycle"]["preStop"]["exec"]["command"]
    assert POD["terminationGracePeriodSeconds"] > int(waits) + SERVER.drain_s


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
    assert user == [str(POD["securityContext"]["runAsUser"])]
    for container in [*POD["initContainers"], *POD["containers"]]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        mounted = {each["name"] for each in container["volumeMounts"]}
        declared = {each["name"] for each in POD["volumes"]} | {"root"}
        assert mounted <= declared
    assert COMPOSE["services"]["remit"]["cap_drop"] == ["ALL"]
    assert COMPOSE["services"]["remit"]["read_only"] is True


def test_compose_starts_on_engines_that_wait_for_no_condition() -> None:
    remit = COMPOSE["services"]["remit"]
    assert remit["command"] == ["remit init && exec remit serve --host 0.0.0.0"]
    assert remit["restart"] == "unless-stopped"
    # None that ends by itself: Podman 4 then starts nothing that depends on it.
    assert set(COMPOSE["services"]) == {"postgres", "remit"}
    # The image sets its database up with a server that listens on the socket alone.
    assert "-h" in COMPOSE["services"]["postgres"]["healthcheck"]["test"]


def test_what_the_pages_install_is_where_the_units_look() -> None:
    page = (TOP / "docs/operations/install.md").read_text()
    backup = (DEPLOY / "systemd/remit-backup.service").read_text()
    (run,) = re.findall(r"^ExecStart=(\S+)", backup, re.MULTILINE)
    assert f"install -D -m 755 deploy/backup.sh {run}\n" in page
    command = (DEPLOY / "remit.sh").read_text()
    for line in ("User=remit", "EnvironmentFile=-/etc/remit/environment"):
        assert line in UNIT.splitlines()
        assert f"--property={line}" in command
    (root,) = re.findall(r"^Environment=(REMIT_ROOT=\S+)", UNIT, re.MULTILINE)
    assert f"--setenv={root}" in command
    # What the units start is a link, so that an upgrade is one command and leaves the old version.
    assert "ln -sfn /opt/remit-0.1 /opt/remit " in page


def test_what_the_image_copies_is_there() -> None:
    for line in re.findall(r"^COPY (?!--from)(.*)$", CONTAINERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (TOP / source).exists(), source
    assert (DEPLOY / "container" / COMPOSE["x-remit"]["build"]["context"] / "src").is_dir()


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


def test_settings_are_read_from_a_config_map_and_keys_from_secrets() -> None:
    kustomization = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text())
    assert sorted(kustomization["resources"]) == ["namespace.yaml", "network.yaml", "remit.yaml"]
    (made,) = kustomization["configMapGenerator"]
    for container in [*POD["initContainers"], *POD["containers"]]:
        sources = {next(iter(each.values()))["name"] for each in container["envFrom"]}
        assert sources == {made["name"], "remit"}
        assert container["image"] == kustomization["images"][0]["name"]
