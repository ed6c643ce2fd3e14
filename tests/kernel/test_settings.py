"""Settings: what is no setting any more does not keep a root from opening."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from remit.kernel.canonical import sha256_hex
from remit.kernel.durable_files import read_regular, replacing
from remit.kernel.errors import ConfigError
from remit.kernel.installed_files import OWNERSHIP_FILE, shipped_file
from remit.kernel.settings import default_settings, load_settings
from remit.kernel.settings.edit import set_values

_DEFAULTS = "HOT/config/defaults.toml"


def test_removed_settings_warn_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = tmp_path / "remit.toml"
    config.write_text(
        "[gateway]\nbreaker_rows = 7\ntimeout_ms = 9000\n[worker.small_model]\nmax_tokens = 5\n",
        "utf-8",
    )
    environment = {"REMIT_SUPERVISOR__ATTENTION__MIN_SCORE": "0.5"}
    for _ in range(2):
        loaded = load_settings(config, environment=environment)
    assert loaded.settings.gateway.timeout_ms == 9000
    assert not any("breaker_rows" in key or "min_score" in key for key, _, _ in loaded.rows())
    assert [record.getMessage() for record in caplog.records] == [
        f"gateway.breaker_rows ({config}) is no longer a setting and is ignored; you can omit it.",
        f"worker.small_model ({config}) is no longer a setting and is ignored; you can omit it.",
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
    _install(tmp_path, _DEFAULTS, data)
    loaded = load_settings(tmp_path / "remit.toml", environment={})
    assert loaded.settings == default_settings()
    assert not caplog.records  # nobody can take them out of there


def _install(root: Path, path: str, data: bytes) -> None:
    owner = {"package_id": "PKG-X-001", "sha256": f"sha256:{sha256_hex(data)}"}
    for name, content in ((path, data), (OWNERSHIP_FILE, json.dumps({path: owner}).encode())):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (_DEFAULTS, b"[leases"),
        (_DEFAULTS, b"\xff"),
        ("HOT/learned/routing/settings.json", b"{"),
        ("HOT/learned/routing/settings.json", b"[]"),
        (_DEFAULTS, b".".join([b"a"] * 3000) + b" = 1"),
        ("HOT/learned/routing/settings.json", b'{"routing":' * 3000 + b"1" + b"}" * 3000),
    ],
)
def test_an_installed_file_that_holds_no_settings_is_an_error(
    tmp_path: Path, path: str, data: bytes
) -> None:
    _install(tmp_path, path, data)
    with pytest.raises(ConfigError):
        load_settings(tmp_path / "remit.toml", environment={})


def test_any_other_unknown_key_is_an_error(tmp_path: Path) -> None:
    config = tmp_path / "remit.toml"
    config.write_text("[gateway]\nbreaker_rowz = 7\n", "utf-8")
    with pytest.raises(ConfigError, match=r"Unknown setting gateway\.breaker_rowz"):
        load_settings(config, environment={})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[gateway]\ntimeout_ms = 99999999999999999999\n", r"gateway\.timeout_ms is not valid"),
        ("[gateway]\nrecover_every_s = inf\n", r"gateway\.recover_every_s is not valid"),
        ('[providers.x]\nbase_url = "http://x"\n', r"providers\.x\.kind is not valid"),
        ("[model]\nauto_order = [1]\n", r"model\.auto_order\.0 is not valid"),
        (f"x = {'[' * 5000}{']' * 5000}\n", "not valid TOML: it is nested too deeply"),
        (f"{'.'.join(['a'] * 3000)} = 1\n", "not valid TOML: it is nested too deeply"),
        (f"[{'.'.join(['a'] * 3000)}]\n", "not valid TOML: it is nested too deeply"),
    ],
)
def test_a_wrong_value_is_named_with_its_file_before_anything_opens(
    tmp_path: Path, text: str, names: str
) -> None:
    _install(tmp_path, _DEFAULTS, shipped_file("PKG-KERNEL-001", _DEFAULTS))
    config = tmp_path / "remit.toml"
    config.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=names) as refused:
        load_settings(config, environment={})
    assert str(config) in str(refused.value)


@pytest.mark.parametrize("key", ["tools.timeout_s", "mcp.s.timeout_s"])
@pytest.mark.parametrize("number", ["inf", "-inf", "nan"])
def test_a_number_that_is_not_finite_is_an_error_of_its_setting(
    tmp_path: Path, key: str, number: str
) -> None:
    config = tmp_path / "remit.toml"
    config.write_text(f"{key} = {number}\n", "utf-8")
    with pytest.raises(ConfigError, match=key):
        load_settings(config, environment={})


def test_a_variable_that_is_nested_deeply_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"environment REMIT_A__A.* is nested too deeply"):
        load_settings(None, environment={f"REMIT_{'__'.join(['A'] * 3000)}": "1"})
    with pytest.raises(ConfigError, match=r"gateway\.timeout_ms is not valid"):
        load_settings(None, environment={"REMIT_GATEWAY__TIMEOUT_MS": "[" * 3000})


# -- Changes of ``remit.toml``: one value, and every other byte as it was ------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[model]\ndefault = "x"\n'),
        ("# mine\n", '# mine\n\n[model]\ndefault = "x"\n'),
        ('[model] # the\ndefault = "y" # old\n', '[model] # the\ndefault = "x"\n'),
        (
            '[model]\nprefixes = {}\n[chat]\ndefault = "no"\n',
            '[model]\ndefault = "x"\nprefixes = {}\n[chat]\ndefault = "no"\n',
        ),
        (
            '[model.prefixes]\n"a" = "b"\n',
            '[model.prefixes]\n"a" = "b"\n\n[model]\ndefault = "x"\n',
        ),
        (
            '[model] # the\r\ndefault = "y" # old\r\n[chat]\n',
            '[model] # the\r\ndefault = "x"\r\n[chat]\n',
        ),
        ('\ufeff[model]\ndefault = "y"\n', '\ufeff[model]\ndefault = "x"\n'),
    ],
)
def test_a_value_is_set(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "remit.toml"
    file.write_bytes(before.encode())
    set_values(file, {"model.default": "x"})
    assert file.read_bytes().decode() == after
    assert file.stat().st_mode & 0o777 == 0o600


def test_any_text_can_be_a_value(tmp_path: Path) -> None:
    file = tmp_path / "remit.toml"
    text = 'a "quoted" \\ é \x7f \n line'
    set_values(file, {"model.default": text, "providers.openai.base_url": "http://x"})
    read = tomllib.loads(file.read_text())
    assert read["model"]["default"] == text
    assert read["providers"]["openai"]["base_url"] == "http://x"


@pytest.mark.parametrize(
    "before",
    [
        b'model = { default = "y" }\n',
        b'model.default = "y"\n',
        b'a = """\n[model]\n"""\n',
        b"[[model]]\n",
        b'[model]\ndefault = "\xff"\n',
    ],
)
def test_what_is_not_understood_is_left_alone(tmp_path: Path, before: bytes) -> None:
    file = tmp_path / "remit.toml"
    file.write_bytes(before)
    with pytest.raises(ConfigError, match=r"remit\.toml"):
        set_values(file, {"model.default": "x"})
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["remit.toml"]


def test_the_file_is_on_disk_before_its_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "file"
    place.write_text("old")
    seen: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"
        seen.append((f"sync {kind}", place.read_text()))
        sync(handle)

    def renamed(one: Path, other: Path) -> None:
        seen.append(("rename", place.read_text()))
        replace(one, other)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", renamed)
    with replacing(place, 0o640) as file:
        file.write(b"new")
    assert seen == [("sync file", "old"), ("rename", "old"), ("sync folder", "new")]
    assert stat.S_IMODE(place.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# -- A file is replaced whole and durably, or stays as it was ------------------------------------


def test_after_an_error_the_old_file_stays_alone(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("old")
    (tmp_path / ".file.new").write_text("of a process that was killed")
    with pytest.raises(ValueError, match="wrong"), replacing(place) as file:
        file.write(b"new")
        raise ValueError("wrong")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]


# -- Reading of regular files ---------------------------------------------------------------------


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_bytes(b"content")
    link.symlink_to(file)
    os.mkfifo(pipe)
    assert read_regular(file) == b"content"
    assert read_regular(link, follow=True) == b"content"
    for place in (link, pipe, tmp_path, tmp_path / "missing"):
        with pytest.raises(OSError):
            read_regular(place)
