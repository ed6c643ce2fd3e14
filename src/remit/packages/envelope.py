"""A package's signature: a DSSE envelope around an in-toto statement, read with suspicion.

Sources: DSSE v1.0 (secure-systems-lab/dsse, ``envelope.md`` and ``protocol.md``), in-toto
Attestation Framework v1.0 (``spec/v1/statement.md``), SPEC 10.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NoReturn

from securesystemslib.dsse import Envelope
from securesystemslib.signer import Signature

from remit.packages.errors import SignatureError
from remit.packages.json_text import parse_json
from remit.packages.manifest import Manifest
from remit.packages.paths import shown, unseen

__all__ = [
    "PAYLOAD_TYPE",
    "PREDICATE_TYPE",
    "STATEMENT_TYPE",
    "SignedBytes",
    "Statement",
    "archive_name",
    "check_statement",
    "read_envelope",
    "read_statement",
]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:remit:package:1"

_SIGNATURE_BYTES = 64  # of Ed25519 (RFC 8032)
_DIGEST = re.compile("[0-9a-f]{64}")
_MOMENT = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_SIGN_ANEW = "Have it signed anew with `remit package sign`."


@dataclass(frozen=True, slots=True)
class SignedBytes:
    """An envelope that is well formed; nothing in it is verified.

    Attributes:
        payload: the bytes that were signed, together with their type.
        pae: what the signatures are over: type and payload in DSSE's pre-authentication encoding.
        signatures: in the order of the envelope, one key's perhaps several times.
    """

    payload: bytes
    pae: bytes
    signatures: tuple[Signature, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """What a signature says of a package.

    Attributes:
        name: of the archive, ``PKG-NAME-001-1.0.0.tar.gz``.
        archive_digest: ``sha256:`` and 64 hex digits.
        manifest_digest: the same, of the manifest's canonical JSON.
        expires: from when on nothing may be installed on its strength; ``None`` for never.
        source: where the archive came from, as its signer says; texts by name.
    """

    name: str
    archive_digest: str
    package_id: str
    version: str
    manifest_digest: str
    expires: datetime | None = None
    source: dict[str, str] = field(default_factory=dict)


def archive_name(package_id: str, version: str) -> str:
    """The file's name of an archive, by which a statement calls it."""
    return f"{package_id}-{version}.tar.gz"


def read_envelope(data: bytes, max_bytes: int | None = None) -> SignedBytes:
    """The parts of an envelope, for whoever verifies them.

    Args:
        data: JSON with ``payload``, ``payloadType`` and ``signatures``, nothing else.
        max_bytes: largest envelope; ``None`` when whoever read ``data`` has seen to it.

    Raises:
        SignatureError: ``unsigned``: there is no envelope, or nobody signed it;
            ``bad_envelope``: it is not an envelope of a package.
    """
    if not data.strip():
        raise _unsigned("There is no signature.")
    if max_bytes is not None and len(data) > max_bytes:
        _refuse(
            f"The signature has {len(data)} bytes, more than the {max_bytes} allowed.",
            "Ask where it came from; a signature is a few hundred bytes.",
        )
    value = _json(data, "signature")
    _keys(value, "signature", {"payload", "payloadType", "signatures"})
    payload_type, listed = value["payloadType"], value["signatures"]
    if payload_type != PAYLOAD_TYPE:
        _refuse(f"The signature is over {_told(payload_type)}, not over {PAYLOAD_TYPE!r}.")
    if not isinstance(listed, list):
        _refuse("The signature's 'signatures' is not a list.")
    payload = _base64(value["payload"], "payload")
    if not listed:
        raise _unsigned("The envelope holds no signature.")
    signatures = tuple(_signature(one) for one in listed)
    return SignedBytes(payload, Envelope(payload, PAYLOAD_TYPE, {}).pae(), signatures)


def read_statement(payload: bytes) -> Statement:
    """What an envelope's payload says. Verify the signatures first.

    Raises:
        SignatureError: ``bad_envelope``: it is not a statement about one package.
    """
    value = _json(payload, "signed statement")
    _keys(value, "signed statement", {"_type", "subject", "predicateType", "predicate"})
    for key, expected in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
        if value[key] != expected:
            _refuse(f"The signed statement's {key!r} is {_told(value[key])}, not {expected!r}.")
    subjects = value["subject"]
    if not isinstance(subjects, list) or len(subjects) != 1:
        _refuse("The signed statement is not about exactly one archive.")
    subject, predicate = subjects[0], value["predicate"]
    _keys(subject, "signed statement's subject", {"name", "digest"})
    _keys(subject["digest"], "signed statement's digest", {"sha256"})
    required = {"package_id", "version", "manifest_sha256"}
    _keys(predicate, "signed statement's predicate", required, {"expires", "source"})
    source = predicate.get("source", {})
    if not isinstance(source, dict):
        _refuse("The signed statement's 'source' is not an object.")
    return Statement(
        name=_text(subject["name"], "name"),
        archive_digest=_digest(f"sha256:{_text(subject['digest']['sha256'], 'sha256')}"),
        package_id=_text(predicate["package_id"], "package_id"),
        version=_text(predicate["version"], "version"),
        manifest_digest=_digest(_text(predicate["manifest_sha256"], "manifest_sha256")),
        expires=_moment(predicate["expires"]) if "expires" in predicate else None,
        source={_text(key, "source"): _text(text, "source") for key, text in source.items()},
    )


def check_statement(statement: Statement, *, archive_digest: str, manifest: Manifest) -> None:
    """Hold what was signed against the archive in hand.

    Raises:
        SignatureError: ``wrong_subject``: it is about another archive.
    """
    expected = {
        "package": (statement.package_id, manifest.package_id),
        "version": (statement.version, manifest.version),
        "name": (statement.name, archive_name(manifest.package_id, manifest.version)),
        "manifest": (statement.manifest_digest, manifest.digest),
        "archive": (statement.archive_digest, archive_digest),
    }
    for what, (said, found) in expected.items():
        if said != found:
            raise SignatureError(
                "wrong_subject",
                f"The signature is not for this archive: its {what} is {shown(said)}, the "
                f"archive's is {shown(found)}.",
                next_step="Get package and signature together from where they came; if they stay "
                "unlike, do not trust that place.",
            )


def _signature(value: Any) -> Signature:
    _keys(value, "envelope's signature", {"keyid", "sig"})
    key_id = _text(value["keyid"], "keyid")
    raw = _base64(value["sig"], "sig")
    if len(raw) != _SIGNATURE_BYTES:
        _refuse(f"A signature has {len(raw)} bytes; one of Ed25519 has {_SIGNATURE_BYTES}.")
    return Signature(key_id, raw.hex())


def _json(data: bytes, what: str) -> Any:
    try:
        return parse_json(data)
    except ValueError as error:
        _refuse(f"The {what} {error}.")


def _keys(
    value: Any, what: str, required: set[str], optional: set[str] | frozenset[str] = frozenset()
) -> None:
    """Exactly these: what one reader skips, another may believe."""
    if not isinstance(value, dict):
        _refuse(f"The {what} is not a JSON object.")
    if missing := sorted(required - set(value)):
        _refuse(f"The {what} lacks {missing[0]!r}.")
    if unknown := sorted(set(value) - required - optional):
        _refuse(f"The {what} has the unknown key {shown(unknown[0])}.")


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        _refuse(f"The {key!r} in the signature is not a text.")
    if unseen(value):
        _refuse(f"The {key!r} in the signature holds a character that nobody sees.")
    return value


def _base64(value: Any, key: str) -> bytes:
    """DSSE lets a signer use either alphabet of RFC 4648."""
    text = _text(value, key)
    try:
        return base64.b64decode(text.translate({45: "+", 95: "/"}), validate=True)
    except (binascii.Error, ValueError):
        _refuse(f"The {key!r} in the signature is not base64.")


def _digest(text: str) -> str:
    if not text.startswith("sha256:") or not _DIGEST.fullmatch(text, 7):
        _refuse(f"The signed statement has {_told(text)} for a digest.")
    return text


def _moment(value: Any) -> datetime:
    text = _text(value, "expires")
    try:
        if not _MOMENT.fullmatch(text):
            raise ValueError(text)
        return datetime.fromisoformat(text[:-1]).replace(tzinfo=UTC)
    except ValueError:
        _refuse(f"The signature expires at {_told(text)}, which is not a time.")


def _told(value: Any) -> str:
    return shown(value) if isinstance(value, str) else "what is not a text"


def _unsigned(message: str) -> SignatureError:
    return SignatureError(
        "unsigned",
        message,
        next_step="Get the package's .intoto.json file from where the package came, or sign the "
        "package with `remit package sign` if it is yours.",
    )


def _refuse(message: str, next_step: str = _SIGN_ANEW) -> NoReturn:
    raise SignatureError("bad_envelope", message, next_step=next_step)
