"""``add-checkpoint`` as C2SP tlog-witness has it, without a network."""

from __future__ import annotations

import base64
import sqlite3
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import HealthCheck, given, settings, strategies as st

from remit.kernel.errors import InvalidInputError
from remit.ledger.tlog import COSIGNATURE, Checkpoint, NoteSignature, SignedCheckpoint, Signer
from remit.ledger.witness import (
    FORK,
    UNPROVEN,
    Witness,
    WitnessDirectory,
    WitnessError,
    WitnessState,
)
from tests.ledger.witness.logs import Log, body
from tests.support.waiting import at_once

_STATE = "remit.ledger.witness.state"


def _accept(witness: Witness, log: Log, *sizes: int, old: int = 0) -> None:
    for size in sizes:
        assert witness.add_checkpoint(log.request(old, size)).status == 200
        old = size


def test_the_cosignature_holds_for_us_and_for_others(
    witness: Witness, log: Log, signer: Signer, state: WitnessState
) -> None:
    before = int(time.time())
    answer = witness.add_checkpoint(log.request(0, 9))
    assert (answer.status, answer.content_type) == (200, "text/plain")
    line = answer.body.decode()
    signed = log.checkpoint(9).with_signatures([NoteSignature.parse(line.removesuffix("\n"))])
    (found,) = signed.cosignatures([signer.verifier_key])
    assert before <= found[1] <= int(time.time())

    dash, name, encoded = line.split(" ")
    data = base64.b64decode(encoded)
    assert (dash, name, encoded[-1]) == ("—", "witness.example/w1", "\n")
    assert data[:4] == signer.verifier_key.key_id
    (timestamp,) = struct.unpack(">Q", data[4:12])
    Ed25519PublicKey.from_public_bytes(signer.verifier_key.public_key).verify(
        data[12:], f"cosignature/v1\ntime {timestamp}\n{log.checkpoint(9).note.text}".encode()
    )

    seen = state.seen(log.signer.name)
    assert (seen.size, seen.root) == (9, log.root(9))
    kept = SignedCheckpoint.parse(seen.note)
    kept.verify(log.signer.verifier_key)
    assert kept.cosignatures([signer.verifier_key]) == [found]


def test_growth_and_the_same_again(witness: Witness, log: Log) -> None:
    _accept(witness, log, 0, 0, 1, 1, 2, 7, 8, 8, 33, 64)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda log: b"", id="nothing"),
        pytest.param(lambda log: b"\n\n\n", id="empty lines"),
        pytest.param(lambda log: b"old 0\n", id="no checkpoint"),
        pytest.param(lambda log: b"old 0\n\n", id="empty checkpoint"),
        pytest.param(lambda log: str(log.checkpoint(5)).encode(), id="no old line"),
        pytest.param(lambda log: body(0, [b"x" * 31], str(log.checkpoint(5))), id="31 bytes"),
        pytest.param(lambda log: body(0, [b"x" * 33], str(log.checkpoint(5))), id="33 bytes"),
        pytest.param(lambda log: body(0, [b"x" * 32] * 64, str(log.checkpoint(5))), id="64 lines"),
        pytest.param(lambda log: log.request(0, 5).replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(lambda log: log.request(0, 5)[:-1], id="no last newline"),
        pytest.param(lambda log: log.request(0, 5).replace(b"\n5\n", b"\n05\n"), id="size"),
        pytest.param(lambda log: log.request(0, 5).replace(b"\n5\n", b"\n%d\n" % 2**63), id="2^63"),
        pytest.param(lambda log: b"Old" + log.request(0, 5)[3:], id="capital"),
        pytest.param(lambda log: b"\xff" + log.request(0, 5), id="not UTF-8"),
        pytest.param(lambda log: log.request(0, 5).replace("—".encode(), b"-"), id="dash"),
    ],
)
def test_400_malformed(witness: Witness, log: Log, state: WitnessState, make: object) -> None:
    assert witness.add_checkpoint(make(log)).status == 400  # type: ignore[operator]
    assert state.all_seen() == []
    assert state.evidence_counts() == {}


def test_400_malformed_numbers_and_proofs(witness: Witness, log: Log, state: WitnessState) -> None:
    checkpoint = str(log.checkpoint(5))
    # The last is above the new size.
    for size in ("", "00", "05", "-1", "+1", " 0", "٣", "9" * 5000, 6):
        assert witness.add_checkpoint(body(size, [], checkpoint)).status == 400, size
    # Stray bits, no padding, and the alphabet of URLs.
    for line in ("A" * 42 + "B=", "A" * 43, "-" * 43 + "="):
        asked = f"old 1\n{line}\n\n{checkpoint}".encode()
        assert witness.add_checkpoint(asked).status == 400, line
    assert state.all_seen() == []
    assert state.evidence_counts() == {}


def test_413_too_long(witness: Witness) -> None:
    assert witness.add_checkpoint(b"old 0\n\n" + b"x" * 1_000_000).status == 413


def test_404_unknown_origin(witness: Witness) -> None:
    other = Log.of(5, Signer.generate("log.example/other"))
    assert witness.add_checkpoint(other.request(0, 5)).status == 404


def test_403_not_signed_by_the_log(witness: Witness, log: Log, state: WitnessState) -> None:
    same_name = Log.of(5, Signer.generate(log.signer.name))
    assert witness.add_checkpoint(same_name.request(0, 5)).status == 403
    forged = log.request(0, 5).replace(base64.b64encode(log.root(5)), base64.b64encode(log.root(6)))
    assert witness.add_checkpoint(forged).status == 403
    # An old size that is too great is looked at only after the signature.
    assert witness.add_checkpoint(body(9, [], str(same_name.checkpoint(5)))).status == 403
    assert state.all_seen() == []


def test_a_cosignature_is_no_log_signature(log: Log, signer: Signer, state: WitnessState) -> None:
    witness = Witness(signer, [log.signer.verifier_key], state)
    by_log_key = Signer.from_pem(log.signer.name, log.signer.to_pem(), COSIGNATURE)
    signed = log.checkpoint(5)
    line = signed.cosign(by_log_key).line()
    assert witness.add_checkpoint(body(0, [], f"{signed.note.text}\n{line}")).status == 403


def test_foreign_signatures_are_not_kept(witness: Witness, log: Log, state: WitnessState) -> None:
    signed = log.checkpoint(5)
    others = [Signer.generate(f"other.example/{n}") for n in range(20)]
    junk = [NoteSignature(log.signer.name, b"abcd", b"no signature of anybody")]
    many = signed.with_signatures([*junk, *(item.sign_note("no") for item in others)])
    assert witness.add_checkpoint(body(0, [], str(many))).status == 200
    assert "other.example" not in state.seen(log.signer.name).note


def test_a_wrong_signature_under_a_known_key_spoils_the_note(witness: Witness, log: Log) -> None:
    signed = log.checkpoint(5)
    wrong = log.signer.sign_note("something else").line()
    assert witness.add_checkpoint(body(0, [], f"{signed}{wrong}")).status == 400


def test_a_log_may_change_its_key(log: Log, signer: Signer, state: WitnessState) -> None:
    renewed = Signer.generate(log.signer.name)
    witness = Witness(signer, [log.signer.verifier_key, renewed.verifier_key], state)
    assert witness.add_checkpoint(log.request(0, 5)).status == 200
    later = Log(log.leaves, renewed)
    assert witness.add_checkpoint(later.request(5, 8)).status == 200
    both = later.checkpoint(9).with_signatures(log.checkpoint(9).note.signatures)
    assert witness.add_checkpoint(body(8, log.prove(8, 9), str(both))).status == 200
    assert len(SignedCheckpoint.parse(state.seen(log.signer.name).note).note.signatures) == 3


def test_409_names_the_size(witness: Witness, log: Log, state: WitnessState) -> None:
    for old in (1, 5):
        answer = witness.add_checkpoint(log.request(old, 5))
        assert (answer.status, answer.content_type, answer.body) == (
            409, "text/x.tlog.size", b"0\n",
        )  # fmt: skip
    _accept(witness, log, 20)
    for old, new in ((0, 30), (19, 20), (21, 30), (0, 10), (10, 10), (30, 30)):
        answer = witness.add_checkpoint(log.request(old, new))
        assert (answer.status, answer.content_type, answer.body) == (
            409, "text/x.tlog.size", b"20\n",
        )  # fmt: skip
    assert state.seen(log.signer.name).size == 20
    assert state.evidence_counts() == {}


def test_409_another_tree_of_the_same_size(
    witness: Witness, log: Log, state: WitnessState, signer: Signer
) -> None:
    _accept(witness, log, 20)
    fork = log.changed(3)
    for _ in range(3):
        answer = witness.add_checkpoint(fork.request(20, 20))
        assert answer.status == 409
        assert answer.content_type != "text/x.tlog.size"
    (kept,) = state.evidence(log.signer.name)
    assert kept.reason == "fork"
    # What is kept convinces a third party: two trees of one size, both signed by the log.
    theirs = SignedCheckpoint.parse(kept.body.partition(b"\n\n")[2])
    held = SignedCheckpoint.parse(kept.held)
    assert theirs.verify(log.signer.verifier_key) == fork.checkpoint(20).checkpoint
    assert held.verify(log.signer.verifier_key) == log.checkpoint(20).checkpoint
    assert held.cosignatures([signer.verifier_key])
    _accept(witness, log, 21, old=20)


def test_a_fork_is_evidence_also_when_the_old_size_is_another(
    witness: Witness, log: Log, state: WitnessState
) -> None:
    _accept(witness, log, 20)
    answer = witness.add_checkpoint(log.changed(3).request(0, 20))
    assert (answer.status, answer.body) == (409, b"20\n")
    assert [item.reason for item in state.evidence(log.signer.name)] == ["fork"]


def test_an_empty_tree_has_one_root(witness: Witness, log: Log) -> None:
    odd = Checkpoint(log.signer.name, 0, b"x" * 32).sign(log.signer)
    assert witness.add_checkpoint(body(0, [], str(odd))).status == 409
    assert witness.add_checkpoint(log.request(0, 0)).status == 200


def test_422_longer_but_inconsistent(witness: Witness, log: Log, state: WitnessState) -> None:
    _accept(witness, log, 20)
    fork = log.changed(3)
    assert witness.add_checkpoint(fork.request(20, 40)).status == 422
    mixed = log.request(20, 40, fork.prove(20, 40))
    assert witness.add_checkpoint(mixed).status == 422
    assert [item.reason for item in state.evidence(log.signer.name)] == ["unproven"] * 2
    assert state.seen(log.signer.name).size == 20
    # The second was the log's own tree with a wrong proof: with the right one it is cleared.
    _accept(witness, log, 40, old=20)
    (kept,) = state.evidence(log.signer.name)
    assert str(fork.checkpoint(40)).encode() in kept.body


@pytest.mark.parametrize(
    ("old", "new", "proof"),
    [(0, 20, [b"x" * 32]), (20, 20, [b"x" * 32]), (20, 40, []), (20, 40, [b"x" * 32] * 63)],
)
def test_422_wrong_proof(
    witness: Witness, log: Log, old: int, new: int, proof: list[bytes]
) -> None:
    if old:
        _accept(witness, log, old)
    assert witness.add_checkpoint(log.request(old, new, proof)).status == 422
    right = log.prove(old, new)
    assert witness.add_checkpoint(log.request(old, new, [*right, b"x" * 32])).status == 422
    _accept(witness, log, new, old=old)


def test_extension_lines_are_cosigned_too(witness: Witness, log: Log, signer: Signer) -> None:
    signed = Checkpoint(log.signer.name, 5, log.root(5), ("more", "lines")).sign(log.signer)
    line = witness.add_checkpoint(body(0, [], str(signed))).body.decode()
    SignedCheckpoint.parse(f"{signed}{line}").cosignatures([signer.verifier_key])


def test_logs_do_not_touch_each_other(log: Log, signer: Signer, state: WitnessState) -> None:
    other = Log.of(64, Signer.generate("log.example/other"), tag="other")
    witness = Witness(signer, [log.signer.verifier_key, other.signer.verifier_key], state)
    _accept(witness, log, 5, 20)
    _accept(witness, other, 7, 9)
    assert {item.origin: item.size for item in state.all_seen()} == {
        log.signer.name: 20,
        other.signer.name: 9,
    }


def test_keys_of_the_wrong_kind(log: Log, signer: Signer, state: WitnessState) -> None:
    with pytest.raises(InvalidInputError):
        Witness(log.signer, [log.signer.verifier_key], state)
    with pytest.raises(InvalidInputError):
        Witness(signer, [signer.verifier_key], state)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), steps=st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_growth_is_always_accepted_and_a_changed_leaf_never(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, steps: list[int]
) -> None:
    directory = WitnessDirectory(tmp_path_factory.mktemp("witness"))
    directory.create("witness.example/w1")
    state = WitnessState(directory.state)
    try:
        log = Log.of(sum(steps) + 40)
        key = Signer.generate("witness.example/w1", COSIGNATURE)
        witness = Witness(key, [log.signer.verifier_key], state)
        size = 0
        for step in steps:
            assert witness.add_checkpoint(log.request(size, size + step)).status == 200
            size += step
            if size == 0:
                continue
            fork = log.changed(data.draw(st.integers(0, size - 1), label="changed leaf"))
            new = size + data.draw(st.integers(0, 40), label="growth of the fork")
            of = data.draw(st.sampled_from([log, fork]), label="whose proof")
            wrong = witness.add_checkpoint(fork.request(size, new, of.prove(size, new)))
            assert wrong.status == (409 if new == size else 422)
            assert state.seen(log.signer.name).root == log.root(size)
    finally:
        state.close()


# -- The record: whole, private, bounded, and never going back -----------------------------------


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
        held = replace(state.seen(log.signer.name), size=before, root=log.root(before))
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
    monkeypatch.setattr(f"{_STATE}.MAX_EVIDENCE_ROWS", 5)
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
    monkeypatch.setattr(f"{_STATE}.MAX_EVIDENCE_BYTES", 1_000)
    held = state.seen(log.signer.name)
    assert state.keep_evidence(UNPROVEN, b"x" * 600, log.checkpoint(1), held)
    assert not state.keep_evidence(UNPROVEN, b"x" * 600, log.checkpoint(2), held)
    assert state.keep_evidence(FORK, b"x" * 600, log.checkpoint(2), held)
    assert [item.reason for item in state.evidence(log.signer.name)] == [FORK]


def _made(place: Path) -> Path:
    """Return a new record."""
    directory = WitnessDirectory(place)
    directory.create("witness.example/w1")
    return directory.state


@pytest.mark.parametrize("shared", [True, False])
def test_racing_never_rolls_back(tmp_path: Path, log: Log, signer: Signer, shared: bool) -> None:
    """Threads on one connection, and on one each, as processes have."""
    path = _made(tmp_path)
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

    at_once(ask, range(4))
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
    monkeypatch.setattr(f"{_STATE}._BUSY_S", 0.05)
    path = _made(tmp_path)
    state = WitnessState(path)
    blocking = sqlite3.connect(path, isolation_level=None)
    try:
        blocking.execute("BEGIN IMMEDIATE")
        with pytest.raises(WitnessError, match="locked"):
            Witness(signer, [log.signer.verifier_key], state).add_checkpoint(log.request(0, 5))
    finally:
        blocking.close()
        state.close()
