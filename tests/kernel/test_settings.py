"""Settings: what is no setting any more does not keep a root from opening."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import ConfigError
from remit.kernel.installation import OWNERSHIP_FILE, shipped_file
from remit.kernel.settings import default_settings, load_settings

_DEFAULTS = "HOT/config/defaults.toml"


def test_a_removed_setting_is_ignored_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "remit.toml"
    config.write_text("[gateway]\nbreaker_rows = 7\ntimeout_ms = 9000\n", "utf-8")
    environment = {"REMIT_SUPERVISOR__ATTENTION__MIN_SCORE": "0.5"}
    for _ in range(2):
        loaded = load_settings(config, environment=environment)
    assert loaded.settings.gateway.timeout_ms == 9000
    assert not any("breaker_rows" in key or "min_score" in key for key, _, _ in loaded.rows())
    assert [record.getMessage() for record in caplog.records] == [
        f"gateway.breaker_rows ({config}) is no longer a setting and is ignored; you can omit it.",
        "supervisor.attention.min_score (environment REMIT_SUPERVISOR__ATTENTION__MIN_SCORE) "
        "is no longer a setting and is ignored; you can omit it.",
    ]


def test_the_command_line_says_it_and_works(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text("[leases]\npoll_s = 1.0\n", "utf-8")
    command = [sys.executable, "-m", "remit", "config", "show", "--root", str(tmp_path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.count("leases.poll_s") == 1
    assert "is no longer a setting" in done.stderr
    assert "leases.lasts_s" in {row["key"] for row in json.loads(done.stdout)["settings"]}


def test_installed_defaults_of_before_are_read_with_the_settings_of_now(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A setting that is none any more is left out; a new one and a new section are added."""
    shipped = shipped_file("PKG-KERNEL-001", _DEFAULTS)
    data = shipped.replace(b"[leases]\n", b"[leases]\npoll_s = 0.5\n")
    start = data.index(b"\n[tools]\n")
    data = data[:start] + data[data.index(b"\n[", start + 1) :]
    data = data.replace(b"\nlasts_s = ", b"\n# lasts_s = ")
    assert data.count(b"# lasts_s") == 1
    for path, content in (
        (_DEFAULTS, data),
        (OWNERSHIP_FILE, json.dumps({
            _DEFAULTS: {"package_id": "PKG-KERNEL-001", "sha256": f"sha256:{sha256_hex(data)}"}
        }).encode()),
    ):  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    loaded = load_settings(tmp_path / "remit.toml", environment={})
    assert loaded.settings == default_settings()
    assert not caplog.records  # nobody can take them out of there


def test_any_other_unknown_key_is_an_error(tmp_path: Path) -> None:
    config = tmp_path / "remit.toml"
    config.write_text("[gateway]\nbreaker_rowz = 7\n", "utf-8")
    with pytest.raises(ConfigError, match=r"Unknown setting gateway\.breaker_rowz"):
        load_settings(config, environment={})
