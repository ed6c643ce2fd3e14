"""``remit package new``, ``pack`` and ``show`` as an author uses them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.commands import require_said, run_remit


def ran(*arguments: str | Path) -> str:
    done = run_remit("package", *arguments)
    assert done.returncode == 0, done
    return done.stdout


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without a root above it that counts."""
    monkeypatch.setenv("REMIT_ROOT", str(tmp_path / "no-root"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_nothing_to_two_versions(work: Path) -> None:
    assert ran("new", "tea", "--id", "PKG-TEA-001", "--title", "Tea").startswith(
        "PKG-TEA-001 0.1.0\n"
    )
    first = ran("pack", "tea")
    archive = Path("PKG-TEA-001-0.1.0.tar.gz")
    assert f"archive: {archive}\n" in first
    told = json.loads(ran("pack", "tea", "--json", "--out", "again/x.tar.gz"))
    assert told["digest"] in first
    assert Path("again/x.tar.gz").read_bytes() == archive.read_bytes()
    assert told["bytes"] == archive.stat().st_size

    prompt = Path("tea/HO1/prompt_packs/PRM-TEA-001.txt")
    prompt.write_text(prompt.read_text().replace("You are an agent", "You are the tea guide"))
    manifest = Path("tea/manifest.json")
    manifest.write_text(
        manifest.read_text().replace("0.1.0", "0.2.0").replace('"list_files"', '"*"')
    )
    require_said(run_remit("package", "pack", "tea"), "PRM-TEA-001.txt", "sha256:", "--update")
    ran("pack", "tea", "--update")

    assert run_remit("package", "diff", archive, "tea").returncode == 2


def test_a_package_is_shown() -> None:
    ran("new", "tea", "--id", "PKG-TEA-001", "--title", "Tea")
    ran("pack", "tea")
    text = ran("show", "tea")
    assert text == ran("show", "PKG-TEA-001-0.1.0.tar.gz")
    assert text.startswith("package_id: PKG-TEA-001\n")
    assert "  tools: list_files\n" in text
    assert re.search(r"  HO2/agents/tea\.json +sha256:\w+ +agent\n", text)
    plain = json.loads(ran("show", "tea", "--json"))
    assert plain["permissions"]["tools"] == ["list_files"]
    assert plain["dependencies"][0]["package_id"] == "PKG-AGENT-001"
    assert plain["manifest_digest"].startswith("sha256:")
    assert {asset["classification"] for asset in plain["assets"]} == {
        "agent", "contract", "prompt_pack",
    }  # fmt: skip
