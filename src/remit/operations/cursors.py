"""The export of the records since the last export, to a file or to a receiver of logs."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.durable_files import fsync, take_lock, write_over
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.secrets import redact_secrets

if TYPE_CHECKING:
    from remit.kernel.settings import LoadedSettings
    from remit.ledger import Batch, LedgerClient
    from remit.operations.ports import RootPort

_POLL_S = 0.5
_RETRY_S = 5.0
_CHUNK_BYTES = 65_536
_FORKED = '{"decision":"FORKED","event_type":"CONFIG_CHANGED"'  # the beginning of a record


def export_by_cursor(
    root: RootPort, place: Path, target: str, *, follow: bool, content: bool
) -> tuple[int, int]:
    """Send the entries after a cursor, batch by batch, and move the cursor after each batch.

    An entry is sent after a checkpoint covers it. If entries wait, a checkpoint is signed at the
    start, and then every ``[ledger] checkpoint_every_s``. A batch whose cursor was not moved, after
    a failure, is sent again by the next run. A partial last line of the file is cut off. An
    interrupt (Ctrl-C) ends the export, and the function returns.

    Args:
        root: the root, whose ledger is opened with its key.
        place: the file of the cursor; the export begins with the first entry if it is missing.
        target: path of a file, ``-`` for standard output, or the URL of an OTLP receiver.
        follow: True to wait for new entries, and to send to a receiver every 5 seconds until it
            accepts.
        content: True to add content.

    Returns:
        The number of exported entries, and the place of the next entry.

    Raises:
        ConfigError: the target is a URL that is not valid, or OpenTelemetry is not installed.
        InvalidInputError: cursor and output are one file, or a file of the ledger, or the output
            has other content than an export.
        LedgerError: the ledger or the cursor cannot be read, the cursor is of another ledger, or
            there is no key to sign a checkpoint.
        RemitError: another export uses the cursor, a file cannot be written, or the receiver did
            not accept a batch.
    """
    from remit.ledger import Cursor, make_batch

    is_url = "://" in target
    _require_usable(root, [place] if is_url else [place, Path(target)])
    client, cursor, name = root.ledger, Cursor.read(place), root.settings.telemetry.service_name
    send = root.log_sender(target, name) if is_url else _writer(target)
    hide = _hider(root.loaded) if content else None
    every_s, covered_at, number = root.settings.ledger.checkpoint_every_s, -math.inf, 0
    try:
        with _locked(place):
            cursor = Cursor.read(place)  # Another export may have moved it until now.
            while True:
                cursor.require_in(client)
                count, end, now = client.count(), _covered(client), time.monotonic()
                if count > end and now - covered_at >= every_s:
                    client.checkpoint()
                    count = end = _covered(client)
                covered_at = now if count <= end else covered_at
                while cursor.next < end:
                    batch = make_batch(client, cursor, end, hide)
                    _deliver(send, batch, root.note, again=follow and is_url)
                    cursor, number = batch.cursor, number + len(batch.records)
                    write_over(place, cursor.to_bytes(), 0o666)
                if not follow:
                    break
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        root.note("")
    except OSError as error:
        raise RemitError(
            f"The lines or the cursor cannot be written: {error}.",
            next_step="Check the paths, the free space and the permissions.",
        ) from error
    return number, cursor.next


def _require_usable(root: RootPort, files: list[Path]) -> None:
    """Raise InvalidInputError if a file is one of the ledger, or occurs twice."""
    ledger = (root.place.path / root.settings.ledger.path).resolve()
    own = {ledger.with_name(ledger.name + end) for end in ("", "-wal", "-shm", "-journal")}
    for file in files:
        if file.resolve() in own:
            raise InvalidInputError(f"{file} is a file of the ledger.")
    if len({file.resolve() for file in files}) < len(files):
        raise InvalidInputError("The cursor and the output are the same file.")


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Lock a cursor for the block; raise RemitError if another process holds the lock."""
    # The cursor's file is replaced with each batch, and cannot hold the lock itself.
    with place.with_name(f".{place.name}.lock").open("ab") as lock:
        if not take_lock(lock.fileno(), fcntl.LOCK_EX, 0):
            raise RemitError(
                f"Another export uses the cursor {place}.",
                next_step="Wait until it ends, or name a cursor and an output of your own.",
            )
        yield


def _covered(client: LedgerClient) -> int:
    latest = client.checkpoints.latest()
    return latest.checkpoint.size if latest else 0


def _deliver(
    send: Callable[[Batch], None], batch: Batch, note: Callable[[str], None], *, again: bool
) -> None:
    """Send a batch; with ``again``, try until it is accepted, else raise RemitError."""
    if any(record.startswith(_FORKED) for record in batch.records):
        note("The ledger was forked: the lines of earlier batches verify only in a file of their "
             "own, with the earlier key.")  # fmt: skip
    said = ""
    while True:
        try:
            send(batch)
        except RemitError as error:
            if not again:
                raise
            if error.message != said:
                note(f"{error.message} Trying again every {_RETRY_S:g} s.")
                said = error.message
            time.sleep(_RETRY_S)
        else:
            return


def _hider(loaded: LoadedSettings) -> Callable[[Any], Any]:
    """Return a function that removes secrets from JSON values."""
    from remit.agents import Redactor

    class Hider(Redactor):
        def text(self, text: str) -> str:
            return redact_secrets(super().text(text))

        def value(self, value: Any) -> Any:
            found = super().value(value)
            if not isinstance(found, dict):
                return found
            return {self.text(name): item for name, item in found.items()}

    return Hider.of(loaded).value


def _writer(target: str) -> Callable[[Batch], None]:
    """Return a function that appends a batch to a file, durably, or prints it.

    The file is opened for each batch, so that it may be rotated.
    """

    def write(batch: Batch) -> None:
        if target == "-":
            sys.stdout.buffer.write(batch.to_bytes())
            sys.stdout.buffer.flush()
            return
        with Path(target).open("ab+") as file:
            _drop_partial_line(file, target)
            file.write(batch.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        fsync(Path(target).resolve().parent)  # A new file's name is durable, too.

    return write


def _drop_partial_line(file: Any, target: str) -> None:
    """Cut off the beginning of a line that a killed process left at the end of a file.

    Raises:
        InvalidInputError: the file has other content than an export.
    """
    from remit.ledger import Batch

    end, size, text = file.seek(0, os.SEEK_END), _CHUNK_BYTES, b""
    while len(text) < end and text.count(b"\n") < 2:
        file.seek(max(0, end - size))
        text, size = file.read(), 2 * size
    *lines, partial = text.rsplit(b"\n", 2)
    start = partial.rstrip(b"\0")  # A loss of power may leave zeros.
    if (lines and not Batch.is_line(lines[-1])) or not Batch.is_start(start):
        raise InvalidInputError(
            f"{target} has other content than an export by cursor; nothing was written.",
            next_step="Name another file; a file that does not exist is made.",
        )
    if partial:
        file.truncate(end - len(partial))
