"""Every reader of an artefact refuses every hostile edit of it, and accepts the artefact itself.

The table says which program reads which artefact. ``make test`` tries a sample of the mutants,
``make soak`` all of them, and prints how many were tried and how many were not detected.

===================  ===================  ================  ===============  ==============
artefact             stand-alone          ledger import     ledger verify    browser script
===================  ===================  ================  ===============  ==============
export               yes                  yes
archived export      yes                  yes
proof                yes                                    check-proof
tenant proof         yes                                    tenant verify
bundle                                                                       yes
extract              yes                                    yes              yes
segment                                                     test_segments
database                                                    test_mutations
===================  ===================  ================  ===============  ==============
"""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import RemitError
from remit.ledger import LedgerClient, read_extract
from remit.ledger.log_of_logs import TenantProof
from remit.ledger.tlog import TlogProof
from remit.views.page import script
from tests.ledger.hostile_artefacts import HOST, Artefacts, make
from tests.support.browser import Browser, find_browser
from tests.support.hostile import (
    Mutant,
    bundle_mutants,
    line_mutants,
    note_mutants,
    object_mutants,
    same,
)
from tests.support.soak import sample
from tests.support.standalone import load_standalone, standalone as run_standalone
from tests.support.stores import SIGNER

KEY = SIGNER.verifier_key

Read = Callable[[bytes], object]
"""Reads an artefact; raises if it does not hold."""

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Artefacts:
    return make(tmp_path_factory.mktemp("artefacts"))


@pytest.fixture(scope="module")
def standalone() -> Any:
    return load_standalone()


def tried(name: str, mutants: Iterable[Mutant], read: Read, count: int) -> None:
    """Have a reader read mutants; print how many there were, and require all to be refused."""
    kinds: Counter[str] = Counter()
    undetected = []
    for mutant in sample(mutants, count):
        kinds[mutant.kind] += 1
        try:
            read(mutant.data)
        except (ValueError, RemitError):
            continue
        undetected.append((mutant.kind, mutant.where))
    print(f"{name}: {kinds.total()} mutants of {len(kinds)} kinds, {len(undetected)} undetected")
    assert undetected == []
    assert kinds.total() > 0


class Importer:
    """Imports exports, each into an empty ledger."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._client = self._empty()

    def _empty(self) -> LedgerClient:
        self._number += 1
        return LedgerClient(self._folder / f"import{self._number}.db")

    def read(self, data: bytes) -> None:
        """Import an export; what was refused leaves the ledger empty."""
        self._client.import_jsonl(io.BytesIO(data), key=KEY)
        report = self._client.verify()
        self._client.close()
        self._client = self._empty()
        assert report.problems == []


@pytest.mark.parametrize("name", ["export", "archived export"])
@pytest.mark.parametrize("reader", ["stand-alone", "import"])
def test_exports(
    artefacts: Artefacts, standalone: Any, tmp_path: Path, name: str, reader: str
) -> None:
    lines = artefacts.exports[name]
    place = tmp_path / "export.jsonl"

    def check(data: bytes) -> None:
        place.write_bytes(data)
        standalone.check_export(str(place), str(KEY), None)

    read = check if reader == "stand-alone" else Importer(tmp_path).read
    again = [json.dumps(json.loads(line), sort_keys=True, indent=None) for line in lines]
    controls = [b"".join(line + b"\n" for line in lines), "\n".join(again).encode()]
    for control in controls:
        read(control)
    count = 60 if name == "export" else 15
    tried(f"{name} x {reader}", line_mutants(lines, artefacts.chosen[name]), read, count)


def test_a_few_mutants_by_the_command(artefacts: Artefacts, tmp_path: Path) -> None:
    lines = artefacts.exports["export"]
    mutants = [Mutant("control", "", b"".join(line + b"\n" for line in lines))]
    mutants += sample(line_mutants(lines, artefacts.chosen["export"]), 4)[:60]
    for mutant in mutants:
        (tmp_path / "e.jsonl").write_bytes(mutant.data)
        done = run_standalone(tmp_path / "e.jsonl", "--key", str(KEY))
        is_control = mutant.kind == "control"
        assert done.returncode == (0 if is_control else 1), (mutant, done)
        assert "Traceback" not in done.stderr
        assert "Error" not in done.stderr, mutant
        assert is_control or done.stderr.startswith("NOT VERIFIED: line"), (mutant, done.stderr)


@pytest.mark.parametrize("reader", ["stand-alone", "remit"])
def test_proofs(artefacts: Artefacts, standalone: Any, reader: str) -> None:
    def check(data: bytes) -> None:
        if reader == "remit":
            TlogProof.parse(data).verify(artefacts.record, KEY)
        else:
            standalone.check_proof(data.decode(), artefacts.record, str(KEY))

    check(artefacts.proof.encode())
    tried(f"proof x {reader}", note_mutants(artefacts.proof), check, 100)


def _tenant_mutants(proof: dict[str, Any]) -> Iterator[Mutant]:
    whole = json.dumps(proof).encode()
    yield from (one for one in object_mutants(proof) if not same(one.new, whole))
    for mutant in note_mutants(proof["proof"]):
        new = {**proof, "proof": mutant.new.decode("utf-8", "surrogatepass")}
        yield mutant._replace(new=json.dumps(new).encode())
    for mutant in note_mutants(proof["head"]["proof"]):
        head = {**proof["head"], "proof": mutant.new.decode("utf-8", "surrogatepass")}
        yield mutant._replace(new=json.dumps({**proof, "head": head}).encode())


@pytest.mark.parametrize("reader", ["stand-alone", "remit"])
def test_tenant_proofs(artefacts: Artefacts, standalone: Any, reader: str) -> None:
    def check(data: bytes) -> None:
        if reader == "remit":
            TenantProof.parse(data).verify(HOST.verifier_key)
        else:
            standalone.check_tenant_proof(data.decode(), str(HOST.verifier_key))

    check(json.dumps(artefacts.tenant_proof).encode())
    tried(f"tenant proof x {reader}", _tenant_mutants(artefacts.tenant_proof), check, 100)


def _extract_mutants(artefacts: Artefacts) -> Iterator[Mutant]:
    for at, one in enumerate(artefacts.extracts):
        whole, others = json.dumps(one).encode(), artefacts.extracts[:at]
        yield from (x for x in object_mutants(one, others) if not same(x.new, whole))
        for mutant in note_mutants(one["checkpoint"]):
            if mutant.kind != "surrogate":
                new = {**one, "checkpoint": mutant.new.decode("utf-8", "surrogatepass")}
                yield mutant._replace(new=json.dumps(new).encode())


@pytest.mark.parametrize("reader", ["stand-alone", "ledger verify"])
def test_extracts(artefacts: Artefacts, standalone: Any, tmp_path: Path, reader: str) -> None:
    place = tmp_path / "extract.json"

    def check(data: bytes) -> None:
        if reader == "ledger verify":
            read_extract(data, KEY)
        else:
            place.write_bytes(data)
            found = standalone.read_extract(str(place))
            if found is None:
                raise ValueError("not an extract")
            standalone.check_extract(found, str(KEY))

    for control in artefacts.extracts:
        check(json.dumps(control, sort_keys=True).encode())
    tried(f"extract x {reader}", _extract_mutants(artefacts), check, 200)


@contextlib.contextmanager
def _browser_check(tmp_path: Path, verify: str) -> Iterator[Read]:
    """Give what has the page's script read an artefact; ``verify`` is a call of it."""
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><script>{script('verify.js')}</script>", "utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.open(page.as_uri())

        def check(data: bytes) -> None:
            failed = '((error) => ({ state: "failed", message: String(error) }))'
            read = f"(async (t) => RemitProof.{verify})({json.dumps(data.decode())})"
            found = browser.run(f"{read}.catch({failed})")
            if found["state"] != "verified":
                raise ValueError(found["message"])

        yield check


@pytest.mark.skipif(find_browser() is None, reason="there is no chromium")
def test_extracts_in_a_browser(artefacts: Artefacts, tmp_path: Path) -> None:
    verify = f"extract(RemitProof.read(t), {json.dumps(str(KEY))})"
    with _browser_check(tmp_path, verify) as check:
        for control in artefacts.extracts:
            check(json.dumps(control).encode())
        tried("extract x browser", _extract_mutants(artefacts), check, 150)


@pytest.mark.skipif(find_browser() is None, reason="there is no chromium")
def test_bundles_in_a_browser(artefacts: Artefacts, tmp_path: Path) -> None:
    bundle, *others = artefacts.bundles
    with _browser_check(tmp_path, "verify(RemitProof.read(t))") as check:
        for control in artefacts.bundles:
            check(json.dumps(control).encode())
        mutants = list(bundle_mutants(bundle, others))
        for mutant in note_mutants(bundle["checkpoint"]):
            new = {**bundle, "checkpoint": mutant.new.decode("utf-8", "surrogatepass")}
            if mutant.kind != "surrogate":
                mutants.append(mutant._replace(new=json.dumps(new).encode()))
        tried("bundle x browser", mutants, check, 150)
