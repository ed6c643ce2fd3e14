"""Making a package, and keeping its manifest true."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from remit.contracts import ContractLoader, check_examples
from remit.kernel.schemas import shipped_schema
from remit.kernel.settings import default_settings
from remit.packages import (
    PLACES,
    Manifest,
    ManifestError,
    PackageError,
    PackError,
    new_package,
    pack,
    read_archive,
    update_hashes,
)
from tests.packages.making import FILES, directory_of, encoded, manifest_of, sha256
from tests.support.agents import anthropic_runtime
from tests.support.processes import run_program
from tests.support.upstream import Upstream, upstream as running_upstream
from tests.support.wire import anthropic_answer, message, tool_use

LIMITS = default_settings().packages


def stated(directory: Path) -> dict[str, tuple[str, str]]:
    manifest = Manifest.parse((directory / "manifest.json").read_bytes())
    return {asset.path: (asset.sha256, asset.classification) for asset in manifest.assets}


def write(directory: Path, path: str, data: bytes = b"x") -> None:
    (directory / path).parent.mkdir(parents=True, exist_ok=True)
    (directory / path).write_bytes(data)


# -- hashes ----------------------------------------------------------------------------------


def test_hashes_follow_the_files_and_classifications_stay(tmp_path: Path) -> None:
    kept = {**FILES, "HO1/tools/a.txt": b"a"}
    value = manifest_of(kept)
    value["assets"][-1]["classification"] = "tool"  # by its place alone it were a document
    directory = directory_of(tmp_path / "p", kept, encoded(value))
    gone, changed, same, tool = kept
    (directory / gone).unlink()
    write(directory, changed, b"Say goodbye.\n")
    write(directory, tool, b"b")
    write(directory, "HO1/contracts/PRC-NEW-001.json", b"{}")
    manifest = update_hashes(directory)
    assert stated(directory) == {
        "HO1/contracts/PRC-NEW-001.json": (sha256(b"{}"), "contract"),
        changed: (sha256(b"Say goodbye.\n"), "prompt_pack"),
        same: (sha256(FILES[same]), "policy"),
        tool: (sha256(b"b"), "tool"),
    }
    assert manifest == Manifest.parse((directory / "manifest.json").read_bytes())
    assert read_archive(io.BytesIO(pack(directory)), LIMITS).manifest == manifest


def test_a_new_file_is_what_its_place_says(tmp_path: Path) -> None:
    directory = directory_of(tmp_path / "p", {})
    expected = {f"{place}a.json": kind for place, kind in PLACES.items()}
    expected |= dict.fromkeys(("HO1/contracts.md", "HO2/notes/a.txt"), "document")
    for path in expected:
        write(directory, path)
    update_hashes(directory)
    assert stated(directory) == {path: (sha256(b"x"), kind) for path, kind in expected.items()}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("README.md", "bad_path"),
        ("HO1/a:b", "bad_path"),
        ("HO1/" + "x" * 65, "path_too_long"),
        ("HO1/link.txt", "link"),
    ],
)
def test_a_file_of_no_package_is_named_only(tmp_path: Path, path: str, code: str) -> None:
    directory = directory_of(tmp_path / "p")
    if code == "link":
        (tmp_path / "secret").write_text("secret")
        (directory / path).symlink_to(tmp_path / "secret")
    else:
        write(directory, path)
    write(directory, "HO1/fine.txt")
    before = (directory / "manifest.json").read_bytes()
    with pytest.raises(PackError, match=path.partition(":")[0]) as caught:
        update_hashes(directory)
    assert caught.value.code == code
    assert (directory / "manifest.json").read_bytes() == before


# -- a new package ---------------------------------------------------------------------------


def test_a_new_package_packs_at_once_and_its_contract_holds(tmp_path: Path) -> None:
    made = new_package(tmp_path / "tea", "PKG-TEA-GUIDE-001", title="All about tea")
    archive = read_archive(io.BytesIO(pack(tmp_path / "tea")), LIMITS)
    assert archive.manifest == made
    assert made.title == "All about tea"
    assert {asset.path: asset.classification for asset in made.assets} == {
        "HO1/contracts/PRC-TEAGUIDE-001.json": "contract",
        "HO1/prompt_packs/PRM-TEAGUIDE-001.txt": "prompt_pack",
        "HO2/agents/tea-guide.json": "agent",
    }
    loader = ContractLoader(tmp_path / "tea/HO1")
    contract = loader.load("PRC-TEAGUIDE-001")
    assert len(contract.examples) >= 3
    assert check_examples(contract, loader.load_pack(contract.prompt_pack_id)) == []
    assert loader.problems() == []
    agent = json.loads(archive.files["HO2/agents/tea-guide.json"])
    Draft202012Validator(shipped_schema("agent")).validate(agent)
    assert agent["agent_id"] == "tea-guide"
    assert agent["contract_id"] == contract.contract_id
    assert tuple(agent["tools"]) == made.permissions.tools
    assert agent["token_budget"] <= int(made.permissions.budgets["token_budget"])


def test_a_wrong_id_makes_nothing(tmp_path: Path) -> None:
    for package_id, title in (("PKG-tea-001", ""), ("PKG-../..-001", ""), ("PKG-TEA-001", "a\nb")):
        with pytest.raises(ManifestError):
            new_package(tmp_path / "p", package_id, title=title)
    assert not (tmp_path / "p").exists()


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(PackageError) as caught:
        new_package(tmp_path, "PKG-TEA-001")
    assert caught.value.code == "not_empty"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(PackageError) as caught:
        new_package(tmp_path / "mine.txt", "PKG-TEA-001")
    assert caught.value.code == "unreadable"


def test_the_new_agent_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = new_package(tmp_path / "tea", "PKG-TEA-001")
    agent = json.loads((tmp_path / "tea/HO2/agents/tea.json").read_bytes())
    script = [
        anthropic_answer(tool_use("list_files", {})),
        message("There is remit.toml."),
        message("As I said, remit.toml."),
    ]
    with anthropic_runtime(tmp_path / "root", monkeypatch, *script) as (runtime, server):
        made_agent = runtime.agent(
            agent["agent_id"],
            instructions=agent["instructions"],
            tools=agent["tools"],
            contract=agent["contract_id"],
            contracts=tmp_path / "tea/HO1",
            order_tokens=agent["token_budget"],
        )
        with made_agent.session() as session:
            first = session.turn("Which files are there?")
            second = session.turn("Which ones?")
        asked = [call.body for call in server.calls]
        orders = runtime.ledger.read_by_event_type("WO_PLANNED")
    assert first.response == "There is remit.toml."
    assert first.quality_gate_passed
    assert [one["tool_id"] for one in first.tool_results] == list(made.permissions.tools)
    assert second.response == "As I said, remit.toml."
    assert second.quality_gate_passed
    assert agent["instructions"] in json.dumps(asked[0]["system"], ensure_ascii=False)
    assert asked[0]["max_tokens"] == 1024
    texts = json.dumps(asked[2]["messages"])
    assert texts.index("There is remit.toml.") < texts.index("Which ones?")
    assert orders


# -- docs/packages.md, followed to the letter ----------------------------------------------------


PAGE = Path(__file__).parents[2] / "docs" / "packages.md"
_BLOCK = re.compile(r"(?:`([\w./-]+)`:\n\n```json\n(.*?)```)|```console\n(.*?)```", re.DOTALL)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with running_upstream() as server:
        yield server


def test_the_page_does_what_it_says(tmp_path: Path, upstream: Upstream) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "remit").write_text(f'#!/bin/sh\nexec {sys.executable} -m remit "$@"\n')
    (programs / "remit").chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("REMIT_")}
    environment = {
        **kept,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "OPENAI_BASE_URL": f"{upstream.url}/v1",
        "OPENAI_API_KEY": "test",
    }
    commands = 0
    for found in _BLOCK.finditer(PAGE.read_text()):
        path, content, console = found.groups()
        if path:
            (work / path).write_text(content)
            continue
        for step in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            command, _, told = step.partition("\n")
            if re.fullmatch(r"remit [^|<>$&;]*", command):  # forked: it begins with its imports
                arguments = shlex.split(command)[1:]
                run = run_program("-m", "remit", *arguments, environment=environment, cwd=work)
            else:
                run = subprocess.run(
                    ["sh", "-c", command], cwd=work, env=environment, capture_output=True, text=True
                )
            said = run.stdout + run.stderr
            expected = [line for line in told.splitlines() if line.strip("… ")]
            fails = any(line.startswith(("error:", "FAIL")) for line in expected)
            assert (run.returncode != 0) == fails, (command, said)
            for line in expected:
                wanted = re.escape(line).replace("…", ".*")
                assert re.search(wanted, said), (command, line, said)
            commands += 1
    assert commands > 20
