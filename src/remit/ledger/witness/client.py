"""The client of a witness: requests cosignatures for a checkpoint (C2SP tlog-witness)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from yarl import URL

from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import call_in_thread
from remit.ledger.tlog import Note, SignedCheckpoint, TlogError, VerifierKey
from remit.ledger.tlog.note import COSIGNATURE, parse_decimal
from remit.ledger.witness.state import WitnessError
from remit.ledger.witness.witness import SIZE_TYPE, Answer, Request

_MAX_ANSWER_BYTES = 64 * 1024
_SHOWN_CHARS = 200
_MAX_TIMESTAMP = (1 << 63) - 1
_KEEP = (
    "Keep the ledger and the answer of the witness as they are, and compare the ledger with a "
    "backup. "
)
_ADVICE = {
    400: "Check that both sides use one version of the protocol.",
    403: "Have the witness's operator check this log's verifier key: `remit ledger key`.",
    404: "Give this log's verifier key (`remit ledger key`) to the witness's operator, and check "
    "the URL.",
}


async def request_cosignature(
    url: str,
    signed: SignedCheckpoint,
    key: VerifierKey,
    prove: Callable[[int, int], list[bytes]],
    *,
    timeout_s: float = 10.0,
) -> SignedCheckpoint:
    """Return a checkpoint with a witness's cosignature, which was verified.

    The first request assumes a witness that has seen nothing. If the witness answers with the size
    it has seen, a second request proves the extension from that size. Nothing is stored here.
    Other lines of the answer are dropped. An earlier or invalid line of this key in ``signed`` is
    replaced. Redirects are not followed; a proxy of the environment is used.

    Args:
        url: the witness's submission prefix, http or https; ``/add-checkpoint`` is appended.
        signed: the checkpoint, signed by the log's key.
        key: the witness's key, of kind :data:`~remit.ledger.tlog.note.COSIGNATURE`.
        prove: returns the consistency proof from an older to a newer size; called in a thread.
        timeout_s: time limit of each request, in seconds.

    Raises:
        InvalidInputError: the URL or the key cannot be used.
        WitnessError: there is no cosignature: the witness cannot be reached in time, refuses the
            checkpoint, or answers incorrectly. With ``witness_size``, the witness has cosigned a
            tree that this checkpoint does not extend: the log was cut off, rewritten or forked. If
            several processes write one log, a newer checkpoint of another process can be the
            cause: compare ``witness_size`` with the log.
        LedgerError, TlogError: ``prove`` failed; its error is raised unchanged.
    """
    if key.kind != COSIGNATURE:
        raise InvalidInputError(
            f"The key of {key.name} is a log's, not a witness's.",
            next_step="`remit witness key` prints the witness's.",
        )
    exchange = _Exchange(_target(url), signed, key)
    old = 0
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=True) as sender:
        answer = await exchange.send(sender, old, prove, timeout_s)
        if answer.status == 409 and answer.content_type == SIZE_TYPE:
            held = exchange.named_size(answer)
            if held != old:
                old = held
                answer = await exchange.send(sender, old, prove, timeout_s)
    if answer.status != 200:
        raise exchange.refusal(answer, old)
    return exchange.cosigned(answer)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A request to a witness to cosign a checkpoint."""

    target: URL
    signed: SignedCheckpoint
    key: VerifierKey

    @property
    def size(self) -> int:
        return self.signed.checkpoint.size

    def failed(self, what: str, next_step: str = "") -> WitnessError:
        return WitnessError(
            f"The witness {self.key.name} {what}.",
            next_step=next_step
            or "Ask the operator of the witness; the checkpoint itself is valid.",
        )

    async def send(
        self, session: aiohttp.ClientSession, old: int, prove: Callable[[int, int], list[bytes]],
        timeout_s: float,
    ) -> Answer:  # fmt: skip
        proof: list[bytes] = []
        if 0 < old < self.size:  # the others are empty by RFC 6962, 2.1.2
            proof = await call_in_thread("remit-proof", lambda: prove(old, self.size))
        body = str(Request(old, tuple(proof), self.signed))
        try:
            async with session.post(
                self.target,
                data=body.encode(),
                headers={"Content-Type": "text/plain; charset=utf-8",
                         "Accept-Encoding": "identity"},
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
            ) as response:  # fmt: skip
                return Answer(response.status, response.content_type, await self._read(response))
        except TimeoutError as error:
            raise self.failed(
                f"did not answer within {timeout_s:g} s", "Try again later."
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise self.failed(
                f"cannot be reached ({reason})", "Check its URL, and that it is running."
            ) from error

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        data = b""
        async for part in response.content.iter_any():
            data += part
            if len(data) > _MAX_ANSWER_BYTES:
                raise self.failed(f"answers with more than {_MAX_ANSWER_BYTES:,} bytes")
        return data

    def named_size(self, answer: Answer) -> int:
        """Return the size in a 409 answer.

        Raises:
            WitnessError: the size is greater than this log's, or the answer is not a size.
        """
        held = parse_decimal(answer.body.removesuffix(b"\n").decode("latin-1"))
        if held is None:
            raise self.failed("names a size that is not a number")
        if held > self.size:
            raise WitnessError(
                f"This ledger was cut off or rewritten: the witness {self.key.name} has seen "
                f"{held} entries of {self.signed.checkpoint.origin!r}, this ledger has "
                f"{self.size}.",
                next_step=f"{_KEEP}Only where another process signed a newer checkpoint of this "
                "ledger meanwhile is all well: then ask again.",
                witness_size=held,
                size=self.size,
            )
        return held

    def cosigned(self, answer: Answer) -> SignedCheckpoint:
        """Return the checkpoint with the answer's cosignature by this witness's key."""
        try:
            note = Note.parse(f"{self.signed.note.text}\n".encode() + answer.body)
            if note.text != self.signed.note.text:
                raise self.failed("answers with more than signature lines")
            given = SignedCheckpoint(self.signed.checkpoint, note)
            times = [time for _, time in given.cosignatures([self.key])]
            if times and max(times) <= _MAX_TIMESTAMP:
                return self.signed.with_cosignature(given, self.key)
        except TlogError as error:
            raise self.failed(
                f"answers with an invalid cosignature of its key: {error.message}",
                "Check the witness's verifier key (`remit witness key`) and its URL.",
            ) from error
        raise self.failed(
            "does not answer with a cosignature of its key",
            "Check the witness's verifier key (`remit witness key`) and its URL.",
        )

    def refusal(self, answer: Answer, old: int) -> WitnessError:
        """Return the error for a refused request that named the size ``old``."""
        status = answer.status
        if status == 409 and answer.content_type == SIZE_TYPE:
            if self.named_size(answer) != old:
                return self.failed("received other requests at the same time", "Try again.")
            if old != self.size:
                return self.failed("refuses the size that it named itself")
        if status == 409 and old == self.size:
            return self._conflict(f"has cosigned another tree of {old} entries: a fork", old)
        if status == 422 and old:
            return self._conflict(f"has seen {old} entries that are not the first {old} here", old)
        if 300 <= status < 400:
            return self.failed("answers with a redirect", "Use the URL that it leads to.")
        shown = "".join(
            char if char.isprintable() else " "
            for char in answer.body.decode("utf-8", "replace")[:_SHOWN_CHARS]
        ).strip()
        retry = "Try again later." if status >= 500 or status == 429 else ""
        return self.failed(
            f"refuses the checkpoint with status {status}: {shown or 'no reason'}",
            _ADVICE.get(status, retry),
        )

    def _conflict(self, what: str, held: int) -> WitnessError:
        return WitnessError(
            f"This ledger was rewritten: the witness {self.key.name} {what}.",
            next_step=f"{_KEEP}`remit ledger verify --checkpoint` with a checkpoint held outside "
            "shows where they part.",
            witness_size=held,
            size=self.size,
        )


def _target(url: str) -> URL:
    try:
        prefix = URL(url)
    except ValueError:
        prefix = URL()
    if prefix.scheme not in ("http", "https") or not prefix.host or prefix.query_string:
        raise InvalidInputError(
            "The URL of the witness is not of http or https.",
            next_step="The URL looks like https://witness.example/; `remit witness run` prints it.",
        )
    return prefix / "add-checkpoint"
