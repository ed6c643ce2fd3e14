"""nginx and Caddy with the files in ``deploy/proxies``, and what every operator changes in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.deploy.places import DEPLOY, program

SERVER = "server 127.0.0.1:4000 fail_timeout=2s;"


def certificate(place: Path) -> tuple[Path, Path]:
    """A key and a certificate that signs itself."""
    key, made = place / "key.pem", place / "fullchain.pem"
    subprocess.run(
        [program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=remit.example.org",
         "-addext", "subjectAltName=DNS:remit.example.org,IP:127.0.0.1", "-keyout", str(key),
         "-out", str(made)],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, made


def changed(name: str, changes: dict[str, str]) -> str:
    """A file of ``deploy/proxies`` with what every operator changes."""
    text = (DEPLOY / "proxies" / name).read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def nginx(place: Path, remits: Sequence[str], port: int, plain: int) -> list[str]:
    """The command that runs nginx in a directory, on a port with TLS and one without, before some
    servers."""
    key, chain = certificate(place)
    site = changed("nginx.conf", {
        SERVER: "\n    ".join(SERVER.replace("127.0.0.1:4000", each) for each in remits),
        "listen 443": f"listen 127.0.0.1:{port}",
        "listen 80": f"listen 127.0.0.1:{plain}", "/etc/ssl/remit/fullchain.pem": str(chain),
        "/etc/ssl/remit/key.pem": str(key),
    })  # fmt: skip
    temporary = "".join(
        f"{name}_temp_path {place}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.getuid() == 0 else ""
    (place / "nginx.conf").write_text(
        f"{user}daemon off;\npid {place}/pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log {place}/access.log;\n{temporary}{site}}}\n"
    )
    return [program("nginx"), "-p", str(place), "-c", str(place / "nginx.conf"), "-e", "stderr"]


def caddy(
    place: Path, remits: Sequence[str], port: int, plain: int, every: str = "100ms"
) -> list[str]:
    """The same of Caddy, which looks at the servers' readiness so often."""
    key, chain = certificate(place)
    site = changed("Caddyfile", {
        "remit.example.org {": f"https://remit.example.org:{port} {{\n\ttls {chain} {key}",
        "127.0.0.1:4000": " ".join(remits), "health_interval 2s": f"health_interval {every}",
    })  # fmt: skip
    (place / "Caddyfile").write_text(
        f"{{\n\tadmin off\n\thttp_port {plain}\n\tstorage file_system {place}/kept\n"
        f"\tauto_https disable_certs\n}}\n{site}"
    )
    os.environ.setdefault("XDG_CONFIG_HOME", str(place))
    return [program("caddy"), "run", "--adapter", "caddyfile", "--config", str(place / "Caddyfile")]
