"""Making a package, and keeping its manifest true."""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from remit.contracts import ContractLoader, check_examples
from remit.kernel.root import Root
from remit.kernel.schemas import shipped_schema
from remit.kernel.settings import default_settings, load_settings
from remit.ledger import LedgerClient, open_root_ledger
from remit.packages import (
    PLACES,
    Archive,
    IncomingArchive,
    Manifest,
    ManifestError,
    PackageError,
    PackError,
    RecordedPrices,
    Registry,
    RootPrices,
    change_own_prices,
    new_package,
    pack,
    prices_of,
    read_archive,
    recorded_prices,
    recorded_prices_of,
    update_hashes,
)
from remit.packages.gates import check_gates
from remit.providers.prices import Overlay, Usage
from remit.runtime import make_root
from remit.runtime.installation import gate_context, install_bootstrap, recover_packages
from tests.packages.install.killing import Clock, forked
from tests.packages.install.world import opened
from tests.packages.making import FILES, directory_of, encoded, manifest_of, sha256
from tests.packages.shipped import RECORD, SHIPPED, manifests, read_versions
from tests.support.agents import anthropic_runtime
from tests.support.processes import run_program
from tests.support.roots import new_root
from tests.support.upstream import Upstream, upstream as running_upstream
from tests.support.wire import anthropic_answer, message, tool_use
from tests.upgrade.conftest import unpack

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


# -- Packages that were shipped before: their content is final, and what replaced them installs ---


def test_the_content_of_a_version_never_changes() -> None:
    recorded = read_versions(RECORD.read_bytes())
    changed = [
        f"{name} {manifest.version}"
        for name, manifest in manifests().items()
        if recorded.get(name, {}).get(manifest.version)
        != [Archive.from_directory(SHIPPED / name).digest]
    ]
    assert changed == [], f"Run `make packages`, which raises the versions of {changed}."


def test_every_package_that_no_longer_ships_is_superseded() -> None:
    gone = read_versions(RECORD.read_bytes()).keys() - set(manifests())
    superseded = {name for manifest in manifests().values() for name in manifest.supersedes}
    assert gone <= superseded


def _check_current(root: Path) -> LedgerClient:
    with opened(root) as ledger:
        registry = Registry.from_ledger(ledger)
        ledger.checkpoint()
        report = check_gates(
            gate_context(Root(root), ledger, load_settings(root / "remit.toml")), by="tester"
        )
    installed = {name: package.version for name, package in registry.packages.items()}
    assert installed == {name: manifest.version for name, manifest in manifests().items()}
    assert [gate.gate for gate in report.gates if not gate.passed] == []
    return ledger


@pytest.mark.parametrize("commit", ["51d42c2", "659dd33"])
def test_an_earlier_bootstrap_installs_and_is_upgraded(commit: str, tmp_path: Path) -> None:
    kept = unpack(tmp_path / "old", commit).path / "HOT" / "installed"
    archives = [file.read_bytes() for file in sorted(kept.glob("*/archives/*.tar.gz"))]
    root = tmp_path / "root"
    incoming = [IncomingArchive(data) for data in archives]
    installed, report = install_bootstrap(Root(root), incoming, dev=True, by="tester")
    assert len(installed) == len(archives)
    # Its packages name modules of its own code; what ships now names those of this code.
    failed = [gate for gate in report.gates if not gate.passed]
    assert [gate.gate for gate in failed] == ["G0B"]
    old = {package.package_id for package in installed}
    make_root(Root(root), by="tester")
    _check_current(root)
    with opened(root) as ledger:
        removed = {entry.metadata["package_id"] for entry in ledger.query(event_type="REMOVED")}
        assert removed == old - set(manifests())
        count = ledger.count()
    make_root(Root(root), by="tester")
    with opened(root) as ledger:
        assert ledger.count() == count
    for name in removed:
        assert not (root / "HOT/specs" / f"{name.replace('PKG', 'SPEC', 1)}.json").exists()


# A change of prices that is killed at one step after another: on record and made, or neither.


MILLION = Usage(1_000_000, 0)


def _opened(root: Path) -> LedgerClient:
    place = Root(root)
    return open_root_ledger(place, load_settings(place.config).settings.ledger)


def _set_to(root: Path, usd: str, last: int | None = None) -> None:
    """Set the price of gpt-4o, or take it back where ``usd`` is empty; be killed at a step."""

    def change(found: RootPrices) -> Overlay:
        if not usd:
            return Overlay({})
        table = 'version = 2026-12-01\n[models."gpt-4o"]\nprovider = "openai"\ndate = 2026-12-01\n'
        data = f'{table}input = "{usd}"\noutput = "{usd}"\n'
        return Overlay.read(data.encode(), "test", found.base)

    with _opened(root) as ledger, Clock(last).wound():
        change_own_prices(Root(root), ledger, "", change, wait_s=5, by="test")


def _recorded(root: Path) -> RecordedPrices:
    with _opened(root) as ledger:
        return recorded_prices(ledger)


def _charged(found: RootPrices) -> float:
    """What a million tokens cost."""
    price = found.table.find("openai", "gpt-4o")
    assert price is not None
    return price.cost_nano(MILLION) / 1e9


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one price of the operator's own."""
    root = new_root(tmp_path_factory.mktemp("priced") / "root")
    _set_to(root, "2")
    return root


@pytest.mark.parametrize(("usd", "charged"), [("3", 3.0), ("", 2.5)])
def test_killed_anywhere_it_is_finished_or_undone(
    priced: Path, tmp_path: Path, usd: str, charged: float
) -> None:
    before, running = _recorded(priced), prices_of(Root(priced), "")
    seen = []
    for last in itertools.count():
        root = tmp_path / str(last)
        shutil.copytree(priced, root)
        status = forked(functools.partial(_set_to, root, usd, last))
        if status == 0:
            break
        assert status == -signal.SIGKILL
        place = Root(root)
        with _opened(root) as ledger:
            recorded = recorded_prices(ledger)
            # A server that runs takes up exactly what came to be on record.
            assert running.behind(place, ledger) == (recorded != before)
            recover_packages(place, ledger, load_settings(place.config))
            found = recorded_prices_of(place, ledger, "", wait_s=1)
        assert found.file.matches(recorded), last
        assert _charged(found) == (2.0 if recorded == before else charged), last
        assert not (root / ".prices.toml.new").exists()
        seen.append(recorded != before)
    assert seen == sorted(seen)
    assert seen.count(False) >= 3
    assert seen.count(True) >= 2
