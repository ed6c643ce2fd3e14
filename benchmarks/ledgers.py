"""Great ledgers to measure on: built once below a directory, and used again by the next run.

    python -m benchmarks.ledgers [--big]

builds those that are not there yet, ``--big`` the one of a million entries on PostgreSQL too.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.postgres import PostgresServer
from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.tlog import Signer

HOME = Path("/tmp/bench_ledgers")
ORIGIN = "example.com/bench"
SMALL, MIDDLE, GREAT = 10_000, 100_000, 1_000_000

EVENTS = ("TURN_STARTED", "DISPATCH", "EXCHANGE", "TOOL_CALL", "TURN_DONE")
TURNS = 10
AT_ONCE = 10
ENTRIES_OF_A_SESSION = TURNS * len(EVENTS)
BATCH = 500
TEXT_BYTES = 300


def signer() -> Signer:
    """The key of all these ledgers."""
    path = HOME / "key.pem"
    if not path.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        path.write_bytes(Signer.generate(ORIGIN).to_pem())
    return Signer.from_pem(ORIGIN, path.read_bytes())


def sqlite_ledger(size: int) -> Path:
    """The SQLite ledger of so many entries."""
    path = HOME / f"ledger-{size}.db"
    if not path.exists():
        new = HOME / f"building-{size}.db"
        for left in HOME.glob(f"{new.name}*"):
            left.unlink()
        _build(str(new), size)
        new.rename(path)
    return path


def postgres_ledger(server: PostgresServer, size: int) -> str:
    """The URL of the PostgreSQL ledger of so many entries."""
    name = f"ledger_{size}"
    if not server.has(name):
        new = f"building_{size}"
        server.drop(new)
        server.create(new)
        _build(server.url(new), size)
        server.rename(new, name)
    return server.url(name)


def server() -> PostgresServer:
    """The server that holds the PostgreSQL ledgers."""
    return PostgresServer(HOME / "postgres")


def session_of(number: int) -> str:
    """The session of an entry: :data:`AT_ONCE` sessions take turns."""
    block = AT_ONCE * ENTRIES_OF_A_SESSION
    return f"SES-{number // block * AT_ONCE + number % AT_ONCE:06d}"


def text(seed: str, size: int = TEXT_BYTES) -> str:
    """A text of words that hardly repeat and do not compress to nothing."""
    source = random.Random(seed)
    words = (f"{source.getrandbits(28):07x}" for _ in range(size // 8 + 1))
    return " ".join(words)[:size]


def entries(size: int) -> Iterator[LedgerEntry]:
    """Sessions of ten turns: started, dispatched, exchanged, a tool called, done."""
    histories: dict[str, list[dict[str, str]]] = {}
    for number in range(size):
        session = session_of(number)
        step = number % (AT_ONCE * ENTRIES_OF_A_SESSION) // AT_ONCE
        turn, event = step // len(EVENTS), EVENTS[step % len(EVENTS)]
        if step == 0:
            histories.pop(session, None)
        history = histories.setdefault(session, [{"role": "system", "content": text("system")}])
        metadata: dict[str, object] = {"session_id": session, "tier": "ho1", "turn": turn}
        metadata["agent_id"] = f"agent-{number % 7}"
        if event == "TURN_STARTED":
            message = text(f"user {session} {turn}")
            history.append({"role": "user", "content": message})
            metadata["user_message"] = message
        elif event == "DISPATCH":
            metadata |= {"model_id": "model-1", "max_tokens": 1024}
        elif event == "EXCHANGE":
            answer = text(f"answer {session} {turn}")
            metadata |= {"model_id": "model-1", "outcome": "success", "prompt": list(history)}
            metadata["response"] = answer
            history.append({"role": "assistant", "content": answer})
        elif event == "TOOL_CALL":
            metadata |= {"tool": "read_file", "arguments": {"path": text(f"{number}", 40)}}
            metadata["result"] = text(f"result {number}")
        else:
            metadata |= {"tokens": number % 997, "outcome": "success"}
            if turn == TURNS - 1:
                del histories[session]
        yield LedgerEntry(event, session, "DONE", f"Step {step} of the session", [], metadata)


def _build(address: str, size: int) -> None:
    """Write a ledger of so many entries."""
    with LedgerClient(address, signer=signer()) as ledger:
        batch = []
        for entry in entries(size):
            batch.append(entry)
            if len(batch) == BATCH:
                ledger.write_many(batch)
                batch = []
        if batch:
            ledger.write_many(batch)
        ledger.checkpoint()


def main() -> None:
    """Build all that are not there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledgers", description=__doc__)
    parser.add_argument("--big", action="store_true", help="a million on PostgreSQL too")
    arguments = parser.parse_args()
    for size in (SMALL, MIDDLE, GREAT):
        started = time.perf_counter()
        path = sqlite_ledger(size)
        print(f"{path}: {time.perf_counter() - started:.1f} s", flush=True)
    with server() as running:
        for size in (SMALL, MIDDLE, GREAT) if arguments.big else (SMALL, MIDDLE):
            started = time.perf_counter()
            url = postgres_ledger(running, size)
            print(f"{url}: {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
