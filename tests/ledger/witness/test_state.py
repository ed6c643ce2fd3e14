"""The record: whole, private, bounded, and never going back."""

from __future__ import annotations

import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from remit.ledger.tlog import SignedCheckpoint, Signer
from remit.ledger.witness import FORK, UNPROVEN, Witness, WitnessError, WitnessState
from remit.ledger.witness import state as state_module
from remit.ledger.witness.state import create_state
from tests.ledger.witness.logs import Log


def test_the_file_is_private_and_made_once(tmp_path: Path) -> None:
    path = tmp_path / "witness.db"
    create_state(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in tmp_path.iterdir()] == ["witness.db"]
    before = path.read_bytes()
    with pytest.raises(WitnessError, match="cannot be created"):
        create_state(path)
    assert path.read_bytes() == before


def test_a_lost_record_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(WitnessError, match="is missing"):
        WitnessState(tmp_path / "witness.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"no database at all " * 100])
def test_a_damaged_record_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "witness.db").write_bytes(content)
    with pytest.raises(WitnessError):
        WitnessState(tmp_path / "witness.db")


def test_durable_settings(state: WitnessState, tmp_path: Path) -> None:
    run = state._connection.execute
    assert run("PRAGMA synchronous").fetchone() == (2,)
    assert run("PRAGMA journal_mode").fetchone() == ("wal",)


def test_it_never_goes_back_whoever_asks(log: Log, state: WitnessState) -> None:
    def put(before: int, size: int, tree: Log) -> SignedCheckpoint | None:
        signed = tree.checkpoint(size)
        held = state_module.Seen(log.signer.name, before, log.root(before))
        return state.update(held, signed, lambda: signed)

    assert put(0, 20, log) is not None
    with pytest.raises(WitnessError):
        put(20, 19, log)
    with pytest.raises(WitnessError):
        put(20, 20, log.changed(1))
    for stale in (0, 5, 10, 21):
        assert put(stale, 30, log) is None
    assert state.seen(log.signer.name).size == 20


def test_nothing_is_recorded_when_signing_fails(log: Log, state: WitnessState) -> None:
    def fail() -> SignedCheckpoint:
        raise RuntimeError("no key")

    with pytest.raises(RuntimeError):
        state.update(state.seen(log.signer.name), log.checkpoint(5), fail)
    assert state.all_seen() == []


def test_nothing_is_cosigned_when_the_record_cannot_be_written(
    log: Log, witness: Witness, state: WitnessState
) -> None:
    state._connection.execute("PRAGMA query_only=ON")
    with pytest.raises(WitnessError):
        witness.add_checkpoint(log.request(0, 5))
    # Evidence that cannot be kept changes no answer.
    state._connection.execute("PRAGMA query_only=OFF")
    assert witness.add_checkpoint(log.request(0, 5)).status == 200
    state._connection.execute("PRAGMA query_only=ON")
    assert witness.add_checkpoint(log.changed(1).request(5, 5)).status == 409


def test_evidence_is_bounded_and_forks_come_first(
    log: Log, state: WitnessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "MAX_EVIDENCE_ROWS", 5)
    held = state.seen(log.signer.name)
    for size in range(1, 9):
        kept = state.keep_evidence(UNPROVEN, b"%d" % size, log.checkpoint(size), held)
        assert kept == (size <= 5)
    assert not state.keep_evidence(UNPROVEN, b"again", log.checkpoint(1), held)
    for size in range(1, 9):
        assert state.keep_evidence(FORK, b"%d" % size, log.checkpoint(size), held) == (size <= 5)
    assert state.evidence_counts() == {(log.signer.name, FORK): 5}
    other = Log.of(5, Signer.generate("log.example/other"))
    assert state.keep_evidence(FORK, b"other", other.checkpoint(5), state.seen(other.signer.name))


def test_evidence_is_bounded_in_bytes(
    log: Log, state: WitnessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "MAX_EVIDENCE_BYTES", 1_000)
    held = state.seen(log.signer.name)
    assert state.keep_evidence(UNPROVEN, b"x" * 600, log.checkpoint(1), held)
    assert not state.keep_evidence(UNPROVEN, b"x" * 600, log.checkpoint(2), held)
    assert state.keep_evidence(FORK, b"x" * 600, log.checkpoint(2), held)
    assert [item.reason for item in state.evidence(log.signer.name)] == [FORK]


@pytest.mark.parametrize("shared", [True, False])
def test_racing_requests_never_roll_back(
    tmp_path: Path, log: Log, signer: Signer, shared: bool
) -> None:
    """Threads on one connection, and on one each, as processes have."""
    path = tmp_path / "witness.db"
    create_state(path)
    states = [WitnessState(path) for _ in range(1 if shared else 4)]
    start, accepted = threading.Barrier(4), []
    failures: list[BaseException] = []

    def ask(number: int) -> None:
        witness = Witness(signer, [log.signer.verifier_key], states[number % len(states)])
        try:
            start.wait()
            held = 0
            for size in range(number + 1, 65, 4):
                while held <= size:
                    answer = witness.add_checkpoint(log.request(held, size))
                    if answer.status == 200:
                        # Appended after the commit: order between threads is not that of commits.
                        accepted.append((held, size))
                        break
                    assert answer.content_type == "text/x.tlog.size"
                    seen = int(answer.body)
                    assert seen >= held
                    held = seen
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    # Each accepted step begins where another ended, once: one chain from 0 to 64, no way back.
    steps = dict(step for step in accepted if step[0] != step[1])
    assert len(steps) == len([step for step in accepted if step[0] != step[1]])
    size, length = 0, 0
    while size in steps:
        assert steps[size] > size
        size, length = steps[size], length + 1
    assert (size, length) == (64, len(steps))
    assert states[0].seen(log.signer.name).size == 64
    for item in states:
        item.close()


def test_a_busy_record_is_an_error_and_not_an_answer(
    tmp_path: Path, log: Log, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_BUSY_S", 0.05)
    create_state(tmp_path / "witness.db")
    state = WitnessState(tmp_path / "witness.db")
    blocking = sqlite3.connect(tmp_path / "witness.db", isolation_level=None)
    try:
        blocking.execute("BEGIN IMMEDIATE")
        with pytest.raises(WitnessError, match="locked"):
            Witness(signer, [log.signer.verifier_key], state).add_checkpoint(log.request(0, 5))
    finally:
        blocking.close()
        state.close()
