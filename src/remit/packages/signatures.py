"""Signatures of packages: DSSE envelopes around in-toto statements, and their verification.

Sources: DSSE v1.0 (secure-systems-lab/dsse, ``envelope.md`` and ``protocol.md``) and in-toto
Attestation Framework v1.0 (``spec/v1/statement.md``). ``securesystemslib`` signs; an envelope is
parsed strictly before it is verified.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from securesystemslib.dsse import Envelope as DsseEnvelope
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import Signature

from remit.kernel.canonical import canonical_json
from remit.kernel.installed_files import digest_of
from remit.kernel.json_text import JsonTextError, load_unique
from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest
from remit.packages.paths import shown, unseen
from remit.packages.signing_key import PackageKey, public_key
from remit.packages.trust_policy import TrustPolicy, format_time

_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_SIGNATURE_BYTES = 64  # Ed25519 signatures have this length (RFC 8032).
_TIME = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_MAX_NAMES = 5  # A message names no more keys.
# By error code of an ignored signature, the reason in words and the next step.
_IGNORE_REASONS = {
    "revoked_key": (
        "revoked",
        "Get a version that another key signed, and ask the key's owner what happened.",
    ),
    "key_not_for_package": (
        "not trusted for this package",
        "If the key's owner may sign this package, run `remit package trust add … --packages`.",
    ),
    "wrong_key": (
        "not trusted",
        "If you know the key's owner, compare the complete key with the owner by another way, "
        "then `remit package trust add` it.",
    ),
}


def _visible(text: str) -> str:
    if unseen(text):
        raise ValueError("it contains an invisible character")
    return text


def _time(value: object) -> datetime:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError("it is not a time such as 2031-01-31T00:00:00Z")
    return datetime.fromisoformat(value[:-1]).replace(tzinfo=UTC)


def _base64(value: object) -> bytes:
    """Decode base64 in either alphabet of RFC 4648, both of which DSSE allows."""
    if not isinstance(value, str):
        raise ValueError("it is not base64")
    return base64.b64decode(value.translate({45: "+", 95: "/"}), validate=True)


_Text = Annotated[str, AfterValidator(_visible)]
_Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Base64 = Annotated[bytes, BeforeValidator(_base64)]


class _Strict(BaseModel):
    """A model with exactly these keys and types, which all readers understand alike."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Subject(_Strict):
    name: _Text
    digest: dict[Literal["sha256"], _Hex] = Field(min_length=1)


class _Predicate(_Strict):
    package_id: _Text
    version: _Text
    manifest_sha256: str = Field(pattern="^sha256:[0-9a-f]{64}$")
    expires: Annotated[datetime | None, BeforeValidator(_time)] = None
    source: dict[_Text, _Text] = {}


class Statement(_Strict):
    """The signed statement about a package, in the form of in-toto; immutable.

    Attributes:
        type: type of the statement, a constant of in-toto.
        subject: the archive, by the name ``PKG-NAME-001-1.0.0.tar.gz`` and its SHA-256.
        predicate_type: type of the predicate, a constant.
        predicate: package id, version and manifest digest; the time after which the signature no
            longer permits an installation; the archive's origin.
    """

    type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: list[_Subject] = Field(min_length=1, max_length=1)
    predicate_type: Literal["urn:remit:package:1"] = Field(alias="predicateType")
    predicate: _Predicate

    @property
    def archive_digest(self) -> str:
        """``sha256:`` and 64 hex digits of the archive."""
        return f"sha256:{self.subject[0].digest['sha256']}"


class _Signature(_Strict):
    keyid: _Text
    sig: _Base64 = Field(min_length=_SIGNATURE_BYTES, max_length=_SIGNATURE_BYTES)


class Envelope(_Strict):
    """A well-formed envelope, not verified; immutable.

    Attributes:
        payload: the signed bytes, without their type.
        payload_type: media type of the payload, a constant of in-toto.
        signatures: ``keyid`` and ``sig`` (64 bytes) of each; a key may occur several times.
    """

    payload: _Base64
    payload_type: Literal["application/vnd.in-toto+json"] = Field(alias="payloadType")
    signatures: list[_Signature]

    @property
    def signed_bytes(self) -> bytes:
        """The bytes that the signatures sign: DSSE's pre-authentication encoding."""
        return _pae(self.payload)

    def statement(self) -> Statement:
        """Return the statement in the payload. Verify the signatures first.

        Raises:
            PackageError: ``bad_envelope``: the payload is not a statement about one package.
        """
        return _parse(Statement, self.payload, "signed statement")


_M = TypeVar("_M", bound=_Strict)


def sign(
    archive_digest: str,
    manifest: Manifest,
    key: PackageKey,
    *,
    expires: datetime | None = None,
    source: Mapping[str, str] | None = None,
    envelope: bytes = b"",
) -> bytes:
    """Return an envelope in which ``key`` signs one archive: same input, same bytes.

    The archive itself is not read.

    Args:
        archive_digest: ``sha256:`` and 64 hex digits of the archive's canonical form.
        manifest: the archive's manifest.
        key: the signing key.
        expires: the time, with its zone, after which the signature permits no installation;
            fractions of a second are dropped. ``None`` for never.
        source: the archive's origin, such as ``{"distribution": "remit"}``.
        envelope: an envelope of the same archive, to which the signature is added; it replaces an
            earlier one of the same key. Its other signatures are not verified. ``expires`` and
            ``source`` of the envelope stay, and the arguments are ignored.

    Returns:
        JSON in UTF-8, the content of ``PKG-NAME-001-1.0.0.intoto.json``.

    Raises:
        PackageError: ``bad_envelope``: the values cannot be signed, or ``envelope`` is not an
            envelope; ``unsigned``: ``envelope`` has no signature; ``wrong_subject``: the envelope
            is about another archive.
        InvalidInputError: ``expires`` has no zone.
    """
    if envelope:
        found = read_envelope(envelope)
        payload = found.payload
        others = [(item.keyid, item.sig) for item in found.signatures if item.keyid != key.key_id]
    else:
        payload, others = _payload(archive_digest, manifest, expires, source), []
    # A statement that would be refused later must not be signed.
    _check_subject(_parse(Statement, payload, "statement"), archive_digest, manifest)
    own = bytes.fromhex(key.signer.sign(_pae(payload)).signature)
    return canonical_json(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": _PAYLOAD_TYPE,
            # Sorted by key, so that the order of signing does not change the bytes.
            "signatures": [
                {"keyid": key_id, "sig": base64.b64encode(signature).decode()}
                for key_id, signature in sorted([*others, (key.key_id, own)])
            ],
        }
    )


def read_envelope(data: bytes, max_bytes: int | None = None) -> Envelope:
    """Return the envelope in a signature file; nothing is verified.

    Args:
        data: JSON with ``payload``, ``payloadType`` and ``signatures``, and no other key.
        max_bytes: most bytes of ``data``; ``None`` for no limit.

    Raises:
        PackageError: ``unsigned``: there is no envelope, or no signature in it; ``bad_envelope``:
            the bytes are not strict JSON of this form, or exceed ``max_bytes``.
    """
    if max_bytes is not None and len(data) > max_bytes:
        raise PackageError(
            "bad_envelope",
            f"The signature has {len(data)} bytes, more than the {max_bytes} allowed.",
            next_step="Check the source of the file; a signature has a few hundred bytes.",
        )
    found = _parse(Envelope, data, "signature") if data.strip() else None
    if found is None or not found.signatures:
        raise PackageError(
            "unsigned",
            "There is no signature.",
            next_step="Get the package's .intoto.json file from the source of the package, or sign "
            "the package with `remit package sign` if it is yours.",
        )
    return found


def check_envelope(
    envelope: bytes,
    *,
    archive_digest: str,
    manifest: Manifest,
    policy: TrustPolicy,
    installed: bool = False,
    threshold: int | None = None,
    max_bytes: int | None = None,
) -> dict[str, Any]:
    """Verify the signatures of one archive.

    A key counts once, however often it signed. A signature by a key that is unknown, revoked,
    retired or not trusted for this package is ignored and not verified. Any other signature that
    does not verify makes the envelope invalid. At least one key must sign.

    Args:
        envelope: JSON as :func:`remit.packages.sign` returns it; empty if there is none.
        archive_digest: ``sha256:`` and 64 hex digits of the present archive.
        manifest: the manifest in that archive.
        policy: the trusted keys.
        installed: True if the package was installed with this envelope before: signatures of keys
            that were retired since are valid, and expiry is not checked again. Revoked keys are
            never valid.
        threshold: the number of keys that must sign; ``None`` for the number in the policy. For an
            installed package, the number at its installation.
        max_bytes: most bytes of the envelope; ``None`` for no limit.

    Returns:
        The record for the ``INSTALLED`` entry: ``keyids`` of the trusted keys that signed, sorted;
        ``threshold``, the required number; ``envelope_sha256`` (``sha256:`` and 64 hex digits); and
        ``waived``, which is false.

    Raises:
        PackageError: by ``code``: ``unsigned``: there is no signature; ``bad_envelope``: the
            envelope or its statement is malformed or too large; ``bad_signature``: a signature of a
            trusted key does not verify; ``wrong_key``, ``revoked_key`` or ``key_not_for_package``:
            no key counts, because all keys are unknown or retired, revoked, or not trusted for this
            package; ``below_threshold``: too few keys signed; ``wrong_subject``: the statement is
            about another archive; ``expired``: the statement no longer permits an installation.
    """
    parsed = read_envelope(envelope, max_bytes)
    needed = policy.threshold if threshold is None else threshold
    counted, ignored = _count(parsed, policy, manifest.package_id, installed)
    if len(counted) < max(needed, 1):
        raise _too_few(len(counted), needed, ignored, manifest.package_id)
    # An unsigned statement is not parsed, so that it cannot do harm.
    statement = parsed.statement()
    _check_subject(statement, archive_digest, manifest)
    expires = statement.predicate.expires
    if expires is not None and not installed and expires <= datetime.now(UTC):
        raise PackageError(
            "expired",
            f"The signature of {manifest.package_id} {manifest.version} expired at "
            f"{format_time(expires)}.",
            next_step="Get a newer version, or have this one signed again. If the clock of this "
            "computer is wrong, set it.",
        )
    return {
        "waived": False,
        "keyids": sorted(counted),
        "threshold": needed,
        "envelope_sha256": digest_of(envelope),
    }


def _count(
    envelope: Envelope, policy: TrustPolicy, package_id: str, installed: bool
) -> tuple[set[str], dict[str, list[str]]]:
    """Return the ids of the keys whose signatures are valid, and the names of the others by error
    code.

    Raises PackageError (``bad_signature``).
    """
    signed_bytes = envelope.signed_bytes
    keys = {key.key_id: key for key in policy.keys}
    counted: set[str] = set()
    ignored: dict[str, list[str]] = {}
    for key_id, signature in dict.fromkeys((item.keyid, item.sig) for item in envelope.signatures):
        key = keys.get(key_id)
        if key is None:
            ignored.setdefault("wrong_key", []).append(shown(key_id))
        elif key.status == "revoked":
            ignored.setdefault("revoked_key", []).append(key.label)
        elif key.status == "retired" and not installed:
            ignored.setdefault("wrong_key", []).append(f"{key.label}, which is retired")
        elif not key.may_sign(package_id):
            ignored.setdefault("key_not_for_package", []).append(key.label)
        else:
            try:
                verifier = public_key(key.public)
                verifier.verify_signature(Signature(key_id, signature.hex()), signed_bytes)
            except UnverifiedSignatureError as error:
                raise PackageError(
                    "bad_signature",
                    f"The signature of the key {key.label} does not verify: the signed "
                    "bytes or the signature were altered.",
                    next_step="Download package and signature again; if the problem persists, do "
                    "not trust their source.",
                ) from error
            counted.add(key_id)
    return counted, ignored


def _too_few(
    counted: int, needed: int, ignored: Mapping[str, list[str]], package_id: str
) -> PackageError:
    reasons = []
    for code, (reason, _) in _IGNORE_REASONS.items():
        names = list(dict.fromkeys(ignored.get(code, ())))
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        if names:
            reasons.append(f"{reason}: {', '.join(names[:_MAX_NAMES])}{more}")
    others = "; ".join(reasons)
    if counted:
        return PackageError(
            "below_threshold",
            f"{counted} of the {needed} required trusted keys signed {package_id}"
            f"{f' (others signed: {others})' if others else ''}.",
            next_step="Have another trusted key sign it: `remit package sign` adds a second "
            "signature.",
        )
    code = next(code for code in _IGNORE_REASONS if code in ignored)
    return PackageError(
        code,
        f"No key that is trusted for {package_id} signed it ({others}).",
        next_step=_IGNORE_REASONS[code][1],
    )


def _check_subject(statement: Statement, archive_digest: str, manifest: Manifest) -> None:
    """Raise PackageError (``wrong_subject``) if a statement is about another archive.

    Args:
        statement: the signed statement.
        archive_digest: ``sha256:`` and 64 hex digits of the present archive.
        manifest: the manifest in that archive.
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
            raise PackageError(
                "wrong_subject",
                f"The signature is not for this archive: its {what} is {shown(signed)}, the "
                f"archive's is {shown(found)}.",
                next_step="Download package and signature together from their source; if they "
                "still differ, do not trust that source.",
            )


def _payload(
    archive_digest: str,
    manifest: Manifest,
    expires: datetime | None,
    source: Mapping[str, str] | None,
) -> bytes:
    predicate: dict[str, Any] = {
        "package_id": manifest.package_id,
        "version": manifest.version,
        "manifest_sha256": manifest.digest,
    }
    if expires is not None:
        predicate["expires"] = format_time(expires)
    if source is not None:
        predicate["source"] = dict(source)
    digest = {"sha256": archive_digest.removeprefix("sha256:")}
    return canonical_json(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": _archive_name(manifest), "digest": digest}],
            "predicateType": "urn:remit:package:1",
            "predicate": predicate,
        }
    )


def _pae(payload: bytes) -> bytes:
    return DsseEnvelope(payload, _PAYLOAD_TYPE, {}).pae()


def _archive_name(manifest: Manifest) -> str:
    return f"{manifest.package_id}-{manifest.version}.tar.gz"


def _parse(model: type[_M], data: bytes, what: str) -> _M:
    try:
        return model.model_validate(load_unique(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        problem = f"does not fit at {shown(place)}: {first['msg']}"
    except JsonTextError as error:
        problem = f"cannot be read: {error.message.rstrip('.')}"
    raise PackageError(
        "bad_envelope",
        f"The {what} {problem}.",
        next_step="Have it signed again with `remit package sign`.",
    )
