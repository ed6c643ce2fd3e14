"""``remit witness`` as processes: started, killed, started again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from remit.ledger.tlog import COSIGNATURE, SignedCheckpoint, VerifierKey
from remit.ledger.witness import WitnessError, request_cosignature
from tests.ledger.witness.logs import Log
from tests.ledger.witness.running import witness_server
from tests.support.commands import run_remit


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_remit("witness", *arguments)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = _run("init", "--dir", tmp_path / "w", "--name", "witness.example/w1")
    assert made.returncode == 0, made.stderr
    assert VerifierKey.parse(made.stdout).kind == COSIGNATURE
    return tmp_path / "w"


def _key(place: Path) -> VerifierKey:
    return VerifierKey.parse((place / "witness.vkey").read_text())


def _status(place: Path) -> dict[str, object]:
    found = _run("status", "--dir", place, "--json")
    assert found.returncode == 0, found.stderr
    result: dict[str, object] = json.loads(found.stdout)
    return result


def test_init(place: Path) -> None:
    assert sorted(item.name for item in place.iterdir()) == [
        "witness.db", "witness.key", "witness.vkey",
    ]  # fmt: skip
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    for name in ("witness.key", "witness.db"):
        assert stat.S_IMODE((place / name).stat().st_mode) == 0o600
    key = (place / "witness.key").read_bytes()
    again = _run("init", "--dir", place, "--name", "witness.example/other")
    assert again.returncode == 1
    assert again.stderr.startswith("error: A witness already exists")
    assert "\n  next: " in again.stderr
    assert (place / "witness.key").read_bytes() == key
    assert VerifierKey.parse(_run("key", "--dir", place).stdout) == _key(place)
    assert _status(place) == {
        "name": "witness.example/w1",
        "key": str(_key(place)),
        "logs": [],
    }


def test_init_after_one_that_did_not_get_to_the_key(place: Path) -> None:
    (place / "witness.key").unlink()
    assert _run("init", "--dir", place, "--name", "witness.example/w2").returncode == 0
    assert _key(place).name == "witness.example/w2"


def test_wrong_use(place: Path, tmp_path: Path, log: Log) -> None:
    vkey = log.signer.verifier_key
    none = _run("run", "--dir", place)
    assert (none.returncode, "at least one log" in none.stderr) == (2, True)
    assert _run("run", "--dir", place, "--log", "nonsense").returncode == 2
    assert _run("run", "--dir", place, "--log", _key(place)).returncode == 2
    assert _run("run", "--log", vkey).returncode == 2
    absent = _run("run", "--dir", tmp_path / "none", "--log", vkey)
    assert (absent.returncode, "witness init" in absent.stderr) == (1, True)
    assert _run("init", "--dir", tmp_path / "x", "--name", "a b").returncode == 1
    assert not (tmp_path / "x").exists()
    far = _run("run", "--dir", place, "--log", vkey, "--host", "192.0.2.1")
    assert (far.returncode, "Cannot listen on" in far.stderr) == (1, True)
    (place / "witness.key").chmod(0o644)
    assert "chmod 600" in _run("run", "--dir", place, "--log", vkey).stderr
    (place / "witness.key").chmod(0o600)
    (place / "witness.db").unlink()
    lost = _run("run", "--dir", place, "--log", vkey)
    assert (lost.returncode, "is missing" in lost.stderr) == (1, True)
    assert not (place / "witness.db").exists()
    shown = _run("run", "--dir", place, "--log", vkey, "--debug")
    assert "Traceback" in shown.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_run_and_end(place: Path, tmp_path: Path, log: Log, number: signal.Signals) -> None:
    keys = tmp_path / "logs.txt"
    keys.write_text(f"# our logs\n\n{log.signer.verifier_key}\n")
    with witness_server(place, "--log-file", keys) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        signed = await request_cosignature(url, log.checkpoint(20), _key(place), log.prove)
        assert signed.cosignatures([_key(place)])
        fork = log.changed(3)
        with pytest.raises(WitnessError, match="rewritten"):
            await request_cosignature(url, fork.checkpoint(20), _key(place), fork.prove)
        process.send_signal(number)
        assert process.wait(20) == 0
        *_, line = (place / "errors").read_text().splitlines()
        assert "fork: 'log.example/main' signed a tree of 20 leaves" in line
    (row,) = _status(place)["logs"]  # type: ignore[misc]
    assert row["origin"] == log.signer.name  # type: ignore[index]
    assert (row["size"], row["root"]) == (20, log.root(20).hex())  # type: ignore[index]
    assert (row["forks"], row["unproven"]) == (1, 0)  # type: ignore[index]
    assert _run("status", "--dir", place).stderr.startswith("FORKED: log.example/main ")
    names = {*os.listdir(place)} - {"errors"}
    assert names == {"witness.db", "witness.key", "witness.vkey"}


async def test_kill_in_the_middle_and_start_again(place: Path) -> None:
    """What it cosigned it remembers, and it never cosigns anything beside it."""
    log, key = Log.of(1_000), _key(place)
    logs = ("--log", log.signer.verifier_key)
    cosigned: dict[int, SignedCheckpoint] = {}
    size = 0

    async def grow(url: str) -> None:
        nonlocal size
        for step in range(size + 1, len(log.leaves)):
            try:
                cosigned[step] = await request_cosignature(
                    url, log.checkpoint(step), key, log.prove
                )
            except WitnessError as error:
                assert error.witness_size is None, error
                return
            size = step

    for steps in (15, 1, 30):
        with witness_server(place, *logs) as (process, url):
            before = size
            growing = asyncio.create_task(grow(url))
            while size < before + steps and not growing.done():
                await asyncio.sleep(0.003)
            os.kill(process.pid, signal.SIGKILL)
            await growing
            process.wait()
        assert size >= before + steps

        with witness_server(place, *logs) as (_, url):
            (row,) = _status(place)["logs"]  # type: ignore[misc]
            held = row["size"]  # type: ignore[index]
            # The one under way when it died may be on record; nobody has its cosignature.
            assert held in (size, size + 1)
            assert row["root"] == log.root(held).hex()  # type: ignore[index]
            fork = log.changed(size // 2)
            for wrong in {size, held, held + 1, held + 50}:
                with pytest.raises(WitnessError, match="rewritten"):
                    await request_cosignature(url, fork.checkpoint(wrong), key, fork.prove)
            if size > 1:
                with pytest.raises(WitnessError, match="cut off"):
                    await request_cosignature(url, log.checkpoint(size - 1), key, log.prove)
            cosigned[held] = await request_cosignature(url, log.checkpoint(held), key, log.prove)
            size = held

    times = [cosigned[step].cosignatures([key])[0][1] for step in sorted(cosigned)]
    assert times == sorted(times)


async def test_two_processes_on_one_record_never_roll_back(place: Path, log: Log) -> None:
    key, logs = _key(place), ("--log", log.signer.verifier_key)
    highest = 0

    async def ask(url: str, sizes: range) -> int:
        nonlocal highest
        done = 0
        for size in sizes:
            floor = highest
            with contextlib.suppress(WitnessError):
                await request_cosignature(url, log.checkpoint(size), key, log.prove)
                assert size >= floor
                highest, done = max(highest, size), done + 1
        return done

    with witness_server(place, *logs) as (_, one), witness_server(place, *logs) as (_, two):
        done = await asyncio.gather(
            *(ask(url, range(start, 65, 4)) for start in (1, 2) for url in (one, two)),
            *(ask(url, range(start, 65, 4)) for start in (3, 4) for url in (one, two)),
        )
        assert sum(done) > 0
        (row,) = _status(place)["logs"]  # type: ignore[misc]
        assert row["size"] >= highest  # type: ignore[index]
        for url in (one, two):
            with pytest.raises(WitnessError, match="rewritten"):
                fork = log.changed(0)
                await request_cosignature(url, fork.checkpoint(64), key, fork.prove)
