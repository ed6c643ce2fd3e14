"""The log of logs: heads of tenants' logs in another, and proofs through both."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry, LedgerError
from remit.ledger.log_of_logs import (
    EVENT,
    TenantProof,
    check_heads,
    latest_head,
    prove_through,
    take_head,
)
from remit.ledger.tlog import Checkpoint, SignedCheckpoint, Signer, TlogError
from tests.ledger.test_proofs import _PYTHON, needs_oracles
from tests.support.standalone import standalone
from tests.support.stores import SIGNER

_TOP = Path(__file__).parents[2]
_TENANT = Signer.generate("example.com/log/tenants/acme")


@dataclass
class Logs:
    """A host's ledger, and that of one tenant."""

    host: LedgerClient
    tenant: LedgerClient
    folder: Path

    def write(self, count: int) -> None:
        self.tenant.write_many(
            [LedgerEntry("NOTE", "S", "D", "r", metadata={"n": n}) for n in range(count)]
        )

    def take(self, signed: str = "", tenant: LedgerClient | None = None) -> str:
        log = tenant or self.tenant
        head = SignedCheckpoint.parse(signed or log.checkpoint())
        return take_head(self.host, "acme", log, head, key=_TENANT.verifier_key)


@pytest.fixture
def logs(target: str, tmp_path: Path) -> Iterator[Logs]:
    with (
        LedgerClient(target, signer=SIGNER) as host,
        LedgerClient(tmp_path / "tenant.db", signer=_TENANT) as tenant,
    ):
        yield Logs(host, tenant, tmp_path)


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=60)


def test_heads_are_taken_as_the_log_grows_each_once(logs: Logs) -> None:
    logs.write(3)
    first = logs.take()
    assert logs.take() == first
    logs.write(300)
    second = logs.host.read(logs.take())
    assert (second.decision, second.metadata["extends"], second.metadata["size"]) == (
        "TAKEN", 3, 303,
    )  # fmt: skip
    head = latest_head(logs.host, "acme")
    assert head is not None
    assert str(head.signed) == second.metadata["checkpoint"]
    assert latest_head(logs.host, "other") is None
    assert logs.host.verify().verified
    assert list(check_heads(logs.host, False)) == []


def test_a_host_that_takes_another_history_is_found_out(logs: Logs) -> None:
    logs.write(3)
    taken = logs.host.read(logs.take())
    for size, root in ((3, b"x" * 32), (5, b"y" * 32), (2, b"z" * 32)):
        signed = Checkpoint(_TENANT.name, size, root).sign(_TENANT)
        said = {"size": size, "root": base64.b64encode(root).decode(), "checkpoint": str(signed)}
        logs.host.write(
            LedgerEntry(EVENT, "acme", "TAKEN", "as if", metadata={**taken.metadata, **said})
        )
    lied = {**taken.metadata, "size": 4}
    logs.host.write(LedgerEntry(EVENT, "acme", "TAKEN", "as if", metadata=lied))
    key = {"verifier_key": str(_TENANT.verifier_key)}
    logs.host.write(LedgerEntry("TENANT_CREATED", "acme", "CREATED", "made", metadata=key))
    other = Signer.generate(_TENANT.name)
    root = base64.b64decode(taken.metadata["root"])
    signed = Checkpoint(_TENANT.name, 3, root).sign(other)
    said = {"checkpoint": str(signed), "verifier_key": str(other.verifier_key)}
    logs.host.write(
        LedgerEntry(EVENT, "acme", "TAKEN", "as if", metadata={**taken.metadata, **said})
    )
    found = [seq for seq, _ in check_heads(logs.host, False)]
    assert found == [1, 2, 3, 4, 6]


def test_an_older_copy_and_another_history_are_refused(logs: Logs) -> None:
    logs.write(3)
    old = logs.tenant.checkpoint()
    logs.take()
    shutil.copy(logs.folder / "tenant.db", logs.folder / "copy.db")
    for end in ("-wal", "-shm"):
        shutil.copy(logs.folder / f"tenant.db{end}", logs.folder / f"copy.db{end}")
    logs.write(2)
    logs.take()
    count = logs.host.count()
    with pytest.raises(LedgerError, match="has 3 entries, and had 5"):
        logs.take(old)
    with LedgerClient(logs.folder / "copy.db", signer=_TENANT) as copy:
        for number in range(4):  # as long as it was, and longer: with another history
            copy.write(LedgerEntry("NOTE", "S", "D", f"other {number}"))
            if number:
                with pytest.raises(LedgerError, match="does not extend"):
                    logs.take(tenant=copy)
    stranger = Signer.generate(_TENANT.name)
    forged = SignedCheckpoint.parse(logs.tenant.checkpoint()).checkpoint.sign(stranger)
    with pytest.raises(LedgerError, match="not signed by the key"):
        logs.take(str(forged))
    assert logs.host.count() == count


def test_a_fork_goes_on_under_its_own_origin_and_not_back(logs: Logs) -> None:
    logs.write(3)
    logs.take()
    forked = Signer.from_pem(f"{_TENANT.name}/fork-1", _TENANT.to_pem())
    with LedgerClient(logs.folder / "forked.db", signer=forked) as after:
        after.write(LedgerEntry("NOTE", "S", "D", "after the fork"))
        entry = logs.host.read(logs.take(tenant=after))
        assert (entry.decision, entry.metadata["extends"]) == ("FORKED", 0)
        logs.write(3)
        with pytest.raises(LedgerError, match="was taken before"):
            logs.take()


def test_one_head_of_the_host_answers_for_an_entry_of_a_tenant(logs: Logs) -> None:
    logs.write(300)
    with pytest.raises(LedgerError, match="not recorded a head of acme"):
        prove_through(logs.host, "acme", logs.tenant, "LED-0000002a")
    logs.take()
    file, key = logs.folder / "proof.json", SIGNER.verifier_key
    file.write_text(str(prove_through(logs.host, "acme", logs.tenant, "LED-0000002a")))
    proof = TenantProof.parse(file.read_bytes())
    host, tenant = proof.verify(key)
    assert (host.origin, tenant.origin, tenant.size) == (SIGNER.name, _TENANT.name, 300)
    check = ("--tenant-proof", file, "--key", str(key))
    good = standalone(*check)
    assert good.returncode == 0, good.stderr
    assert (
        "LED-0000002a of 'example.com/log/tenants/acme', by a checkpoint of 300 entries"
        in good.stdout
    )
    assert good.stdout.splitlines()[-1] == "VERIFIED"
    told = json.loads(file.read_text())
    other = str(logs.tenant.prove("LED-0000002b"))
    for change in (
        {"record": told["record"].replace('"n":42', '"n":43')},
        {"proof": other},
        {"head": {**told["head"], "record": told["record"]}},
        {"head": {"record": told["record"], "proof": told["proof"]}},
        {"format": "remit-tenant-proof/2"},
    ):
        file.write_text(json.dumps({**told, **change}))
        with pytest.raises(TlogError):
            TenantProof.parse(file.read_bytes()).verify(key)
        done = standalone(*check)
        assert (done.returncode, done.stdout) == (1, "")
    with pytest.raises(TlogError):  # the tenant's key alone vouches for no host
        proof.verify(_TENANT.verifier_key)


@needs_oracles
def test_other_peoples_tools_verify_both_levels(tmp_path: Path) -> None:
    with (
        LedgerClient(tmp_path / "host.db", signer=SIGNER) as host,
        LedgerClient(tmp_path / "tenant.db", signer=_TENANT) as tenant,
    ):
        _check_by_others(Logs(host, tenant, tmp_path))


def _check_by_others(logs: Logs) -> None:
    logs.write(300)
    logs.take()
    proof = prove_through(logs.host, "acme", logs.tenant, "LED-0000002a")
    for log, signer, name in (
        (logs.tenant, _TENANT, "tenant"), (logs.host, SIGNER, "host"),
    ):  # fmt: skip
        of_host = name == "host"
        record, path = (logs.folder / f"{name}.{end}" for end in ("record", "proof"))
        record.write_bytes(proof.head_record if of_host else proof.record)
        path.write_text(str(proof.head_proof if of_host else proof.proof))
        (logs.folder / "key").write_text(str(signer.verifier_key))
        arguments = (path, record, logs.folder / "key")
        if of_host:  # sigstore is slow to load, and aics-tlog checks the same of both
            found = _run(_PYTHON, _TOP / "tests/oracles/sigstore_oracle.py", *arguments)
            assert found.stdout.strip() == "verified", found.stderr
        tiles = logs.folder / f"{name}.tiles"
        log.export(tiles, format="tiles")
        found = _run(_PYTHON, _TOP / "tests/oracles/aics_oracle.py", tiles, logs.folder / "key",
                     "--proof", path, record)  # fmt: skip
        assert found.stdout.strip() == "verified", found.stderr
        size = proof.head_proof.signed.checkpoint.size if of_host else 300
        index = proof.head_proof.index if of_host else 42
        records = logs.folder / f"{name}.records"
        records.write_bytes(
            b"".join(file.read_bytes() for file in sorted((tiles / "tile/entries").rglob("*"))
                     if file.is_file())
        )  # fmt: skip
        found = _run(_PYTHON, _TOP / "tests/oracles/pymerkle_oracle.py", records, size,
                     "--inclusion", f"{index}:{size}")  # fmt: skip
        assert found.returncode == 0, found.stderr
        head = (proof.head_proof if of_host else proof.proof).signed.checkpoint
        assert head.root.hex() in found.stdout
