"""The witness: its decision on ``add-checkpoint`` requests, and its server."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aiohttp import web

from remit.kernel.errors import InvalidInputError
from remit.ledger.tlog import (
    SignedCheckpoint,
    Signer,
    TlogError,
    VerifierKey,
    verify_consistency,
)
from remit.ledger.tlog.note import COSIGNATURE, ED25519, Note, parse_base64, parse_decimal
from remit.ledger.witness.state import FORK, UNPROVEN, Seen, WitnessError, WitnessState

MAX_BODY_BYTES = 1_000_000
"""A request longer than this is refused."""

MAX_PROOF_LINES = 63
"""Maximum number of lines of a consistency proof, by the protocol."""

SIZE_TYPE = "text/x.tlog.size"
"""Content type of the answer that says how large the latest cosigned tree is."""

_TEXT_TYPE = "text/plain"
_BODY_S = 30.0
_SHUTDOWN_S = 5.0
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_log = logging.getLogger("remit.witness")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the witness to a request, independent of the transport; immutable.

    Attributes:
        status: an HTTP status code.
        content_type: content type of the body.
        body: the bytes; cosignature lines for status 200.
    """

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """An add-checkpoint request, not verified; ``str`` gives its body. Immutable.

    Attributes:
        old_size: the size that the sender believes to be the latest cosigned one.
        proof: hashes of 32 bytes.
        signed: the checkpoint, not verified yet.
    """

    old_size: int
    proof: tuple[bytes, ...]
    signed: SignedCheckpoint

    @classmethod
    def parse(cls, body: bytes) -> Request:
        """Return the request in a body; nothing is verified.

        Args:
            body: an old size, lines of a consistency proof, and a checkpoint.

        Raises:
            TlogError: the body or its checkpoint is malformed, or the proof has more than 63 lines.
        """
        head, separator, rest = body.partition(b"\n\n")
        first, *lines = head.decode("latin-1").split("\n")
        old_size = parse_decimal(first.removeprefix("old "))
        if not separator or not first.startswith("old ") or old_size is None:
            raise TlogError("The request does not begin with an old size and a proof.")
        if len(lines) > MAX_PROOF_LINES:
            raise TlogError(f"The proof has more than {MAX_PROOF_LINES} lines.")
        proof = tuple(item for line in lines if (item := parse_base64(line, 32)) is not None)
        if len(proof) != len(lines):
            raise TlogError("A line of the proof is not base64 of 32 bytes.")
        return cls(old_size, proof, SignedCheckpoint.parse(rest))

    def __str__(self) -> str:
        lines = [f"old {self.old_size}", *(base64.b64encode(item).decode() for item in self.proof)]
        return "".join(f"{line}\n" for line in lines) + f"\n{self.signed}"


class Witness:
    """A witness, which cosigns only trees that extend all trees cosigned before.

    The object holds the private key; threads may share it. ``state`` is closed by its opener.

    Args:
        signer: the witness's key, of kind :data:`~remit.ledger.tlog.note.COSIGNATURE`.
        logs: keys of the served logs; several keys of one name are all trusted for that origin.
        state: the record of cosigned trees.

    Raises:
        InvalidInputError: the key is a log's, or one of ``logs`` is a witness's.
    """

    def __init__(self, signer: Signer, logs: Sequence[VerifierKey], state: WitnessState) -> None:
        if signer.verifier_key.kind != COSIGNATURE:
            raise InvalidInputError(
                f"The key of {signer.name} belongs to a log and cannot cosign.",
                next_step="`remit witness init` creates the key of a witness.",
            )
        self._signer = signer
        self._state = state
        self._logs: dict[str, list[VerifierKey]] = {}
        for key in logs:
            if key.kind != ED25519:
                raise InvalidInputError(
                    f"The key of {key.name} is a witness's, not a log's.",
                    next_step="`remit ledger key` prints the log's.",
                )
            self._logs.setdefault(key.name, []).append(key)

    @property
    def verifier_key(self) -> VerifierKey:
        """The public key that verifies the cosignatures of this witness."""
        return self._signer.verifier_key

    def logs(self) -> list[tuple[VerifierKey, Seen]]:
        """Return the served logs, each with its latest cosigned tree, by first mention of the
        origin.

        A log with several keys is returned once for each. A log without a cosigned tree has an
        empty one.

        Raises:
            WitnessError: the state cannot be read.
        """
        return [
            (key, self._state.seen(origin)) for origin, keys in self._logs.items() for key in keys
        ]

    def add_checkpoint(self, body: bytes) -> Answer:
        """Decide on a request; cosign and record its checkpoint if it extends the latest one.

        A signed fork, with any old size, and a signed tree with a wrong proof that is larger than a
        cosigned one are stored as evidence. A failure to store evidence is logged.

        Args:
            body: body of the request.

        Returns:
            200 with the cosignature; 400 malformed, or an old size above the new; 403 not signed by
            that log; 404 a log that is not served; 409 another old size (the body is the right
            one), or another tree of the same size; 413 over 1,000,000 bytes; 422 a wrong proof.
            Other bodies of refusals are a sentence.

        Raises:
            WitnessError: the record cannot be read or written; nothing was cosigned.
        """
        if len(body) > MAX_BODY_BYTES:
            return _refuse(413, f"The request is longer than {MAX_BODY_BYTES:,} bytes.")
        try:
            request = Request.parse(body)
        except TlogError as error:
            return _refuse(400, error.message)
        new = request.signed.checkpoint
        keys = self._logs.get(new.origin)
        if keys is None:
            return _refuse(404, "This witness does not serve that log.")
        try:
            trusted = request.signed.note.verify(keys)
        except TlogError as error:
            return _refuse(403, error.message)
        if request.old_size > new.size:
            return _refuse(400, "The old size is greater than the checkpoint's.")
        signed = _only(request.signed, trusted)

        def cosign() -> SignedCheckpoint:
            return signed.with_signatures([signed.cosign(self._signer)])

        while True:
            held = self._state.seen(new.origin)
            refusal = self._judge(request, signed, held)
            if refusal is not None:
                return refusal
            cosigned = self._state.update(held, signed, cosign)
            if cosigned is not None:
                _log.info("cosigned %d leaves of %r", new.size, new.origin)
                return Answer(200, _TEXT_TYPE, cosigned.note.signatures[-1].line().encode())
            # Another request was first. The record only grows: the next judgement is final.

    def _judge(self, request: Request, signed: SignedCheckpoint, held: Seen) -> Answer | None:
        """Return the refusal; ``None`` if the checkpoint extends ``held``."""
        new = signed.checkpoint
        fork = new.size == held.size and new.root != held.root
        if fork:
            # Also where the old size is another: two signed trees of one size speak for themselves.
            self._keep(FORK, request, signed, held)
        if request.old_size != held.size:
            return Answer(409, SIZE_TYPE, f"{held.size}\n".encode())
        if fork:
            return _refuse(409, f"Another tree of {held.size} leaves was cosigned: a fork.")
        try:
            verify_consistency(held.size, new.size, request.proof, held.root, new.root)
        except TlogError as error:
            if 0 < held.size < new.size:  # Otherwise only the proof is wrong, not the tree.
                self._keep(UNPROVEN, request, signed, held)
            return _refuse(422, error.message)
        return None

    def _keep(self, reason: str, request: Request, signed: SignedCheckpoint, held: Seen) -> None:
        """Store evidence without foreign signatures; log a failure to do so."""
        body = str(replace(request, signed=signed))
        new = signed.checkpoint
        try:
            if self._state.keep_evidence(reason, body.encode(), signed, held):
                _log.error(
                    "%s: %r signed a tree of %d leaves; one of %d is cosigned",
                    *(reason, new.origin, new.size, held.size),
                )
        except WitnessError as error:
            _log.error("evidence against %r was not kept: %s", new.origin, error)


def _only(signed: SignedCheckpoint, keys: Sequence[VerifierKey]) -> SignedCheckpoint:
    """Return a checkpoint with the signatures of ``keys`` alone, each once."""
    own = {(key.name, key.key_id) for key in keys}
    bare = SignedCheckpoint(signed.checkpoint, Note(signed.note.text, ()))
    found = {(item.name, item.key_id): item for item in signed.note.signatures}
    return bare.with_signatures(item for key, item in found.items() if key in own)


def _refuse(status: int, why: str) -> Answer:
    return Answer(status, _TEXT_TYPE, f"{why}\n".encode())


def witness_app(witness: Witness) -> web.Application:
    """Return the application: ``POST /add-checkpoint``, ``GET /healthz``, and ``GET /`` for people.

    ``POST`` answers as :meth:`Witness.add_checkpoint` decides. The signatures of the logs are the
    only authentication: anyone who can reach it may ask. A request that takes over 30 seconds to
    arrive is answered with 408, a body of over 1,000,000 bytes with 413, and an unusable record
    with 503. ``/healthz`` reads the record. ``/`` lists the witness's key, and the key and cosigned
    size of each log. Nothing is closed at the end.

    Args:
        witness: the witness that answers. Its record is used in threads, never on the loop.
    """

    async def add_checkpoint(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_BODY_S):
                body = await request.read()
        except TimeoutError:
            return _text(408, "The request did not arrive in time.")
        try:
            answer = await asyncio.to_thread(witness.add_checkpoint, body)
        except WitnessError as error:
            return _unusable(error)
        return web.Response(
            status=answer.status,
            body=answer.body,
            headers={**_HEADERS, "Content-Type": answer.content_type},
        )

    async def healthz(request: web.Request) -> web.Response:
        try:
            await asyncio.to_thread(witness.logs)
        except WitnessError as error:
            return _unusable(error)
        return _text(200, "ok")

    async def overview(request: web.Request) -> web.Response:
        try:
            logs = await asyncio.to_thread(witness.logs)
        except WitnessError as error:
            return _unusable(error)
        lines = [f"witness {witness.verifier_key.name}", f"key {witness.verifier_key}", ""]
        for key, seen in logs:
            lines += [f"log {key}", f"size {seen.size}", ""]
        return _text(200, "\n".join(lines).rstrip())

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/add-checkpoint", add_checkpoint)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/", overview)
    return app


async def serve(
    witness: Witness,
    *,
    stop: asyncio.Event,
    host: str = "127.0.0.1",
    port: int = 0,
    on_listening: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve requests until ``stop`` is set; then finish the running requests, cut after 5 seconds.

    Args:
        witness: the witness that answers; it is not closed.
        stop: ends the server.
        host: address to listen on.
        port: port to listen on; 0 for a free one.
        on_listening: called once with the URL when requests are accepted; its error ends the
            server and is raised.

    Raises:
        WitnessError: the address cannot be used.
    """
    runner = web.AppRunner(witness_app(witness), access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise WitnessError(
                f"Cannot listen on {host}, port {port}: {error.strerror or error}.",
                next_step="Choose another port, or stop the program that uses it.",
            ) from error
        bound = runner.addresses[0][1]
        on_listening(f"http://{f'[{host}]' if ':' in host else host}:{bound}/")
        await stop.wait()
    finally:
        await runner.cleanup()


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=_HEADERS)


def _unusable(error: WitnessError) -> web.Response:
    _log.error("%s", error)
    return _text(503, "The witness's record cannot be used now.")  # the path is not for everyone
