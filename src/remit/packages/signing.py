"""Signing a package: a DSSE envelope around an in-toto statement.

Sources: DSSE v1.0 (secure-systems-lab/dsse, ``envelope.md`` and ``protocol.md``), in-toto
Attestation Framework v1.0 (``spec/v1/statement.md``), SPEC 10. ``securesystemslib`` signs;
what comes from others is read strictly before it is verified.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from securesystemslib.dsse import Envelope
from securesystemslib.signer import Signature

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError
from remit.packages.errors import SignatureError
from remit.packages.json_text import parse_json
from remit.packages.manifest import Manifest
from remit.packages.package_key import PackageKey
from remit.packages.paths import shown, unseen
from remit.packages.trust_policy import format_time

__all__ = [
    "PackageKey",
    "SignedBytes",
    "Statement",
    "add_signature",
    "check_statement",
    "read_envelope",
    "read_statement",
    "sign",
]

_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "urn:remit:package:1"
_SIGNATURE_BYTES = 64  # of Ed25519 (RFC 8032)
_TIME = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def _visible(text: str) -> str:
    if unseen(text):
        raise ValueError("it holds a character that nobody sees")
    return text


def _time(value: object) -> datetime:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError("it is not a time such as 2031-01-31T00:00:00Z")
    return datetime.fromisoformat(value[:-1]).replace(tzinfo=UTC)


def _base64(value: object) -> bytes:
    """DSSE lets a signer use either alphabet of RFC 4648."""
    if not isinstance(value, str):
        raise ValueError("it is not base64")
    return base64.b64decode(value.translate({45: "+", 95: "/"}), validate=True)


_Text = Annotated[str, AfterValidator(_visible)]
_Base64 = Annotated[bytes, BeforeValidator(_base64)]


class _Strict(BaseModel):
    """Exactly these keys and types: what one reader skips, another may believe."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Digest(_Strict):
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class _Subject(_Strict):
    name: _Text
    digest: _Digest


class _Predicate(_Strict):
    package_id: _Text
    version: _Text
    manifest_sha256: str = Field(pattern="^sha256:[0-9a-f]{64}$")
    expires: Annotated[datetime | None, BeforeValidator(_time)] = None
    source: dict[_Text, _Text] = {}


class Statement(_Strict):
    """What a signature says of a package, as in-toto words it.

    Attributes:
        subject: the archive, by the name ``PKG-NAME-001-1.0.0.tar.gz`` and its SHA-256.
        predicate: package id, version, the manifest's digest; from when on nothing may be
            installed on its strength; where the archive came from.
    """

    type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: list[_Subject] = Field(min_length=1, max_length=1)
    predicate_type: Literal["urn:remit:package:1"] = Field(alias="predicateType")
    predicate: _Predicate

    @property
    def archive_digest(self) -> str:
        """``sha256:`` and 64 hex digits."""
        return f"sha256:{self.subject[0].digest.sha256}"


class _SignatureModel(_Strict):
    keyid: _Text
    sig: _Base64 = Field(min_length=_SIGNATURE_BYTES, max_length=_SIGNATURE_BYTES)


class _EnvelopeModel(_Strict):
    payload: _Base64
    payload_type: Literal["application/vnd.in-toto+json"] = Field(alias="payloadType")
    signatures: list[_SignatureModel]


_M = TypeVar("_M", bound=_Strict)


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
        predicate["expires"] = format_time(expires)
    if source is not None:
        predicate["source"] = dict(source)
    statement = {
        "_type": _STATEMENT_TYPE,
        "subject": [
            {
                "name": _archive_name(manifest),
                "digest": {"sha256": archive_digest.removeprefix("sha256:")},
            }
        ],
        "predicateType": _PREDICATE_TYPE,
        "predicate": predicate,
    }
    payload = canonical_json(statement)
    try:
        statement_ = read_statement(payload)  # what we would refuse, we do not sign
    except SignatureError as error:
        raise InvalidInputError(
            f"This cannot be signed: {error.message}",
            next_step="Give the digest that packing printed, and a source of plain short texts.",
        ) from error
    if statement_.archive_digest != archive_digest:
        raise InvalidInputError(
            "The archive's digest does not begin with 'sha256:'.",
            next_step="Give the digest that packing printed.",
        )
    envelope = Envelope(payload, _PAYLOAD_TYPE, {})
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
        max_bytes: largest envelope; ``None`` when the reader has bounded it.

    Raises:
        SignatureError: ``unsigned`` or ``bad_envelope``: it is not an envelope of a package;
            ``wrong_subject``: it is about another archive.
    """
    signed = read_envelope(envelope, max_bytes)
    statement = read_statement(signed.payload)
    if archive_digest is not None and manifest is not None:
        check_statement(statement, archive_digest=archive_digest, manifest=manifest)
    mine = key.signer.sign(signed.pae)
    others = [item for item in signed.signatures if item.keyid != mine.keyid]
    return _encoded(signed.payload, [*others, mine])


def read_envelope(data: bytes, max_bytes: int | None = None) -> SignedBytes:
    """The parts of an envelope, for the verifier.

    Args:
        data: JSON with ``payload``, ``payloadType`` and ``signatures``, nothing else.
        max_bytes: largest envelope; ``None`` when the reader of ``data`` has bounded it.

    Raises:
        SignatureError: ``unsigned``: there is no envelope, or no signature in it;
            ``bad_envelope``: it is not an envelope of a package.
    """
    if max_bytes is not None and len(data) > max_bytes:
        raise SignatureError(
            "bad_envelope",
            f"The signature has {len(data)} bytes, more than the {max_bytes} allowed.",
            next_step="Ask where it came from; a signature is a few hundred bytes.",
        )
    found = _parse(_EnvelopeModel, data, "signature") if data.strip() else None
    if found is None or not found.signatures:
        raise SignatureError(
            "unsigned",
            "There is no signature.",
            next_step="Get the package's .intoto.json file from where the package came, or sign "
            "the package with `remit package sign` if it is yours.",
        )
    signatures = tuple(Signature(item.keyid, item.sig.hex()) for item in found.signatures)
    pae = Envelope(found.payload, _PAYLOAD_TYPE, {}).pae()
    return SignedBytes(found.payload, pae, signatures)


def read_statement(payload: bytes) -> Statement:
    """What an envelope's payload says. Verify the signatures first.

    Raises:
        SignatureError: ``bad_envelope``: it is not a statement about one package.
    """
    return _parse(Statement, payload, "signed statement")


def check_statement(statement: Statement, *, archive_digest: str, manifest: Manifest) -> None:
    """Compares what was signed with the archive in hand.

    Raises:
        SignatureError: ``wrong_subject``: it is about another archive.
    """
    predicate = statement.predicate
    expected = {
        "package": (predicate.package_id, manifest.package_id),
        "version": (predicate.version, manifest.version),
        "name": (statement.subject[0].name, _archive_name(manifest)),
        "manifest": (predicate.manifest_sha256, manifest.digest),
        "archive": (statement.archive_digest, archive_digest),
    }
    for what, (signed, found) in expected.items():
        if signed != found:
            raise SignatureError(
                "wrong_subject",
                f"The signature is not for this archive: its {what} is {shown(signed)}, the "
                f"archive's is {shown(found)}.",
                next_step="Get package and signature together from where they came; if they stay "
                "unlike, do not trust that place.",
            )


def _parse(model: type[_M], data: bytes, what: str) -> _M:
    try:
        return model.model_validate(parse_json(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        problem = f"does not fit at {shown(place)}: {first['msg']}"
    except ValueError as error:
        problem = str(error)
    raise SignatureError(
        "bad_envelope",
        f"The {what} {problem}.",
        next_step="Have it signed again with `remit package sign`.",
    )


def _archive_name(manifest: Manifest) -> str:
    return f"{manifest.package_id}-{manifest.version}.tar.gz"


def _encoded(payload: bytes, signatures: Iterable[Signature]) -> bytes:
    """In the order of the keys: who signed first does not matter."""
    ordered = sorted(signatures, key=lambda item: (item.keyid, item.signature))
    return canonical_json(
        {
            "payload": base64.standard_b64encode(payload).decode(),
            "payloadType": _PAYLOAD_TYPE,
            "signatures": [
                {
                    "keyid": item.keyid,
                    "sig": base64.standard_b64encode(bytes.fromhex(item.signature)).decode(),
                }
                for item in ordered
            ],
        }
    )
