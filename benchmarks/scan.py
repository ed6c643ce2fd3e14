"""The floor of verification: hash and canonical form of all that is stored, nothing else."""

from __future__ import annotations

import hashlib
import hmac
import multiprocessing
import sqlite3
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import orjson

from remit.kernel.canonical import canonical_json

CHUNK = 400


def scan(path: Path, jobs: int) -> None:
    """Go over the whole ledger, in as many processes as given, each with a part of it."""
    connection = sqlite3.connect(path)
    (entries,) = connection.execute("SELECT max(seq) + 1 FROM entries").fetchone()
    (contents,) = connection.execute("SELECT max(content_id) + 1 FROM contents").fetchone()
    connection.close()
    parts = [
        (
            path,
            (entries * job // jobs, entries * (job + 1) // jobs),
            (contents * job // jobs, contents * (job + 1) // jobs),
        )
        for job in range(jobs)
    ]
    if jobs == 1:
        _scan_part(*parts[0])
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(_scan_part, *part) for part in parts]:
            done.result()


def _scan_part(path: Path, entries: tuple[int, int], contents: tuple[int, int]) -> None:
    connection = sqlite3.connect(path)
    low, end = contents
    while low < end:
        rows = connection.execute(
            "SELECT nonce, codec, CAST(value AS BLOB), commitment FROM contents "
            "WHERE content_id >= ? AND content_id < ?",
            (low, min(low + CHUNK, end)),
        ).fetchall()
        for nonce, codec, value, commitment in rows:
            data = zlib.decompress(value) if codec.endswith("+zlib") else value
            encoded = canonical_json(data.decode() if codec[:4] == "text" else orjson.loads(data))
            assert hmac.digest(nonce, encoded, "sha256").hex() == commitment
        low += CHUNK
    low, end = entries
    while low < end:
        rows = connection.execute(
            "SELECT entry_hash, CAST(record AS BLOB) FROM entries WHERE seq >= ? AND seq < ?",
            (low, min(low + CHUNK, end)),
        ).fetchall()
        for entry_hash, record in rows:
            assert hashlib.sha256(record).hexdigest() == entry_hash
            assert canonical_json(orjson.loads(record)) == record
        low += CHUNK
    connection.close()
