"""Changes of ``remit.toml``: one value, and every other byte as it was."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from remit.kernel.errors import ConfigError
from remit.kernel.settings.edit import set_values


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
    ],
)
def test_a_value_is_set(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "remit.toml"
    file.write_text(before)
    set_values(file, {"model.default": "x"})
    assert file.read_text() == after
    assert file.stat().st_mode & 0o777 == 0o600


def test_any_text_can_be_a_value(tmp_path: Path) -> None:
    file = tmp_path / "remit.toml"
    text = 'a "quoted" \\ é \n line'
    set_values(file, {"model.default": text, "providers.openai.base_url": "http://x"})
    read = tomllib.loads(file.read_text())
    assert read["model"]["default"] == text
    assert read["providers"]["openai"]["base_url"] == "http://x"


@pytest.mark.parametrize(
    "before",
    ['model = { default = "y" }\n', 'model.default = "y"\n', 'a = """\n[model]\n"""\n', "["],
)
def test_what_is_not_understood_is_left_alone(tmp_path: Path, before: str) -> None:
    file = tmp_path / "remit.toml"
    file.write_text(before)
    with pytest.raises(ConfigError):
        set_values(file, {"model.default": "x"})
    assert file.read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["remit.toml"]
