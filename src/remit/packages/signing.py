"""Signing a package: DSSE and in-toto, by ``securesystemslib`` (SPEC 10, ADR 28)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from securesystemslib.dsse import Envelope
from securesystemslib.signer import Signature

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError
from remit.packages.envelope import (
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    archive_name,
    check_statement,
    read_envelope,
    read_statement,
)
from remit.packages.errors import SignatureError
from remit.packages.manifest import Manifest
from remit.packages.package_key import PackageKey
from remit.packages.trust_policy import moment

__all__ = ["PackageKey", "add_signature", "sign"]


def sign(
    archive_digest: str,
    manifest: Manifest,
    key: PackageKey,
    *,
    expires: datetime | None = None,
    source: Mapping[str, str] | None = None,
) -> bytes:
    """An envelope in which ``key`` stands for one archive: the same input, the same bytes.

    Args:
        archive_digest: ``sha256:`` and 64 hex digits, of the whole ``.tar.gz`` file.
        manifest: the archive's.
        expires: from when on nothing may be installed on its strength, with its zone; fractions
            of a second are dropped.
        source: where the archive came from, such as ``{"distribution": "remit"}``.

    Returns:
        JSON in UTF-8: what belongs into ``PKG-NAME-001-1.0.0.intoto.json``.

    Raises:
        InvalidInputError: ``archive_digest``, ``expires`` or ``source`` is not of that form.
    """
    predicate: dict[str, Any] = {
        "package_id": manifest.package_id,
        "version": manifest.version,
        "manifest_sha256": manifest.digest,
    }
    if expires is not None:
        predicate["expires"] = moment(expires)
    if source is not None:
        predicate["source"] = dict(source)
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [
            {
                "name": archive_name(manifest.package_id, manifest.version),
                "digest": {"sha256": archive_digest.removeprefix("sha256:")},
            }
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    payload = canonical_json(statement)
    try:
        said = read_statement(payload)  # what we would refuse, we do not sign
    except SignatureError as error:
        raise InvalidInputError(
            f"This cannot be signed: {error.message}",
            next_step="Give the digest that packing told, and a source of plain short texts.",
        ) from error
    if said.archive_digest != archive_digest:
        raise InvalidInputError(
            "The archive's digest does not begin with 'sha256:'.",
            next_step="Give the digest that packing told.",
        )
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    return _encoded(payload, [envelope.sign(key.signer)])


def add_signature(
    envelope: bytes,
    key: PackageKey,
    *,
    archive_digest: str | None = None,
    manifest: Manifest | None = None,
    max_bytes: int | None = None,
) -> bytes:
    """The envelope with the signature of ``key`` as well, in place of an older one of its own.

    Args:
        archive_digest: of the archive that is meant; with ``manifest``, nothing else is signed.
            Left out only by who has looked at the envelope.
        manifest: the one in that archive.
        max_bytes: largest envelope; ``None`` when whoever read it has seen to that.

    Raises:
        SignatureError: ``unsigned`` or ``bad_envelope``: it is not an envelope of a package;
            ``wrong_subject``: it is about another archive.
    """
    signed = read_envelope(envelope, max_bytes)
    statement = read_statement(signed.payload)
    if archive_digest is not None and manifest is not None:
        check_statement(statement, archive_digest=archive_digest, manifest=manifest)
    mine = key.signer.sign(signed.pae)
    others = [one for one in signed.signatures if one.keyid != mine.keyid]
    return _encoded(signed.payload, [*others, mine])


def _encoded(payload: bytes, signatures: Iterable[Signature]) -> bytes:
    """In the order of the keys: who signed first does not matter."""
    ordered = sorted(signatures, key=lambda one: (one.keyid, one.signature))
    return canonical_json(
        {
            "payload": base64.standard_b64encode(payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [
                {
                    "keyid": one.keyid,
                    "sig": base64.standard_b64encode(bytes.fromhex(one.signature)).decode(),
                }
                for one in ordered
            ],
        }
    )
