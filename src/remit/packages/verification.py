"""Verification of a package's signatures against the trusted keys."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import Signature

from remit.kernel.canonical import sha256_hex
from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest
from remit.packages.package_key import public_key
from remit.packages.paths import shown
from remit.packages.signatures import Envelope, check_subject, read_envelope
from remit.packages.trust_policy import TrustPolicy, format_time

_MAX_NAMES = 5  # A message names no more keys.
# By error code of an ignored signature, the reason in words and the next step.
_IGNORED = {
    "revoked_key": ("revoked", "Get a version that another key signed, and ask what happened."),
    "key_not_for_package": (
        "not trusted for this package",
        "If the key's owner may sign it: `remit package trust add … --packages`.",
    ),
    "wrong_key": (
        "not trusted",
        "If you know the key's owner, compare the complete key with the owner by another way, "
        "then `remit package trust add` it.",
    ),
}


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

    A key counts once, however often it signed. A signature by an unknown key is ignored. A
    signature that names a trusted key and does not verify makes the envelope invalid.

    Args:
        envelope: JSON as :func:`remit.packages.sign` returns it; empty if there is none.
        archive_digest: ``sha256:`` and 64 hex digits of the present archive.
        manifest: the manifest in that archive.
        policy: the trusted keys.
        installed: the package was installed with this envelope before: signatures of keys that were
            retired since are valid, and expiry is not checked again. Revoked keys are never valid.
        threshold: the number of keys that must sign; ``None`` for the number in the policy. For an
            installed package, the number at its installation.
        max_bytes: most bytes of the envelope; ``None`` for no limit.

    Returns:
        The record for the ``INSTALLED`` entry: ``keyids`` of the trusted keys that signed, sorted;
        ``threshold``, the required number; ``envelope_sha256`` (``sha256:`` and 64 hex digits); and
        ``waived``, which is false.

    Raises:
        PackageError: by ``code``: ``unsigned``, ``bad_envelope``, ``wrong_key``, ``revoked_key``,
            ``key_not_for_package``, ``bad_signature``, ``below_threshold``, ``wrong_subject``,
            ``expired``. ``docs/package-trust.md`` explains each.
    """
    parsed = read_envelope(envelope, max_bytes)
    needed = policy.threshold if threshold is None else threshold
    counted, ignored = _count(parsed, policy, manifest.package_id, installed)
    if len(counted) < max(needed, 1):
        raise _too_few(len(counted), needed, ignored, manifest.package_id)
    # An unsigned statement is not parsed, so that it cannot do harm.
    statement = parsed.statement()
    check_subject(statement, archive_digest, manifest)
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
        "envelope_sha256": f"sha256:{sha256_hex(envelope)}",
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
                    next_step="Get package and signature again; if it stays so, do not trust where "
                    "they came from.",
                ) from error
            counted.add(key_id)
    return counted, ignored


def _too_few(
    counted: int, needed: int, ignored: Mapping[str, list[str]], package_id: str
) -> PackageError:
    reasons = []
    for code, (reason, _) in _IGNORED.items():
        names = list(dict.fromkeys(ignored.get(code, ())))
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        if names:
            reasons.append(f"{reason}: {', '.join(names[:_MAX_NAMES])}{more}")
    others = "; ".join(reasons)
    if counted:
        return PackageError(
            "below_threshold",
            f"{counted} of the {needed} trusted keys that have to sign {package_id} did"
            f"{f' (others signed: {others})' if others else ''}.",
            next_step="Have another trusted key sign it: `remit package sign` adds a signature to "
            "the one that is there.",
        )
    code = next(code for code in _IGNORED if code in ignored)
    return PackageError(
        code,
        f"No key that is trusted for {package_id} signed it ({others}).",
        next_step=_IGNORED[code][1],
    )
