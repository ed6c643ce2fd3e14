"""Whether a package's signature shows that those who are trusted stand behind it (SPEC 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NoReturn

from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import Signature

from remit.kernel.canonical import sha256_hex
from remit.packages.errors import SignatureError
from remit.packages.manifest import Manifest
from remit.packages.paths import shown
from remit.packages.signing import check_statement, read_envelope, read_statement
from remit.packages.trust_policy import TrustPolicy, format_time

__all__ = ["Signed", "check_envelope"]

_MAX_NAMED = 5  # keys in one sentence


@dataclass(frozen=True, slots=True)
class Signed:
    """What a verified envelope showed.

    Attributes:
        keyids: of the trusted keys that signed, sorted; at least ``threshold``.
        threshold: how many had to.
        expires: when the signature does; ``None`` for never.
        envelope_sha256: ``sha256:`` and 64 hex digits of the envelope's bytes.
        source: where the archive came from, as the signers say.
    """

    keyids: tuple[str, ...]
    threshold: int
    expires: datetime | None
    envelope_sha256: str
    source: Mapping[str, str] = field(default_factory=dict)


def check_envelope(
    envelope: bytes,
    *,
    archive_digest: str,
    manifest: Manifest,
    policy: TrustPolicy,
    now: datetime,
    installed: bool = False,
    threshold: int | None = None,
    max_bytes: int | None = None,
) -> Signed:
    """Verifies the signatures over one archive.

    A key counts once, however often it signed. A signature that names a trusted key and does not
    verify spoils the whole; one by an unknown key is ignored.

    Args:
        envelope: JSON as :func:`remit.packages.signing.sign` makes it; empty when there is none.
        archive_digest: ``sha256:`` and 64 hex digits of the archive in hand.
        manifest: the manifest in that archive.
        now: the time, with its zone.
        installed: the package was installed with this envelope at an earlier time: signatures of
            keys retired since still count, and expiry was checked then. Revoked ones never do.
        threshold: how many keys have to sign, where that is not what the policy says now: for
            what is installed, what was asked for then.
        max_bytes: largest envelope; ``None`` when the reader has bounded it.

    Raises:
        SignatureError: by ``code``: ``unsigned``, ``bad_envelope``, ``wrong_key``,
            ``revoked_key``, ``key_not_for_package``, ``bad_signature``, ``below_threshold``,
            ``wrong_subject``, ``expired``. ``docs/package-trust.md`` explains each.
        InvalidInputError: ``now`` has no zone.
    """
    format_time(now)  # refuses a time without a zone
    signed = read_envelope(envelope, max_bytes)
    counted, ignored = _count(signed.signatures, signed.pae, policy, manifest.package_id, installed)
    needed = policy.threshold if threshold is None else threshold
    if len(counted) < needed or not counted:
        _too_few(counted, ignored, needed, manifest.package_id)
    # Only now: what no trusted key signed is not worth reading.
    statement = read_statement(signed.payload)
    check_statement(statement, archive_digest=archive_digest, manifest=manifest)
    expires = statement.predicate.expires
    if expires is not None and not installed and expires <= now:
        raise SignatureError(
            "expired",
            f"The signature of {manifest.package_id} {manifest.version} expired at "
            f"{format_time(expires)}.",
            next_step="Get a newer version, or have this one signed again. If the clock of this "
            "computer is wrong, set it.",
        )
    return Signed(
        tuple(sorted(counted)),
        needed,
        expires,
        f"sha256:{sha256_hex(envelope)}",
        statement.predicate.source,
    )


def _count(
    signatures: Sequence[Signature],
    pae: bytes,
    policy: TrustPolicy,
    package_id: str,
    installed: bool,
) -> tuple[set[str], dict[str, list[str]]]:
    """The ids of the keys that count; and who does not, by the code of the reason."""
    keys = {key.key_id: key for key in policy.keys}
    verifiers = {key_id: key.verifier for key_id, key in keys.items()}
    counted: set[str] = set()
    ignored: dict[str, list[str]] = {}
    for pair in dict.fromkeys((item.keyid, item.signature) for item in signatures):
        key_id, signature = pair
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
                verifiers[key_id].verify_signature(Signature(key_id, signature), pae)
            except UnverifiedSignatureError as error:
                raise SignatureError(
                    "bad_signature",
                    f"The signature of the key {key.label} does not verify: what it is over, or "
                    "the signature itself, was altered.",
                    next_step="Get package and signature again; if it stays so, do not trust where "
                    "they came from.",
                ) from error
            counted.add(key_id)
    return counted, ignored


def _too_few(
    counted: set[str], ignored: Mapping[str, Sequence[str]], needed: int, package_id: str
) -> NoReturn:
    reasons = {
        "revoked_key": "revoked",
        "key_not_for_package": f"not trusted for {package_id}",
        "wrong_key": "not trusted",
    }
    others = "; ".join(
        f"{reason}: {_list(ignored[code])}" for code, reason in reasons.items() if code in ignored
    )
    if counted:
        raise SignatureError(
            "below_threshold",
            f"{len(counted)} of the {needed} trusted keys that have to sign {package_id} did"
            f"{f' (others signed: {others})' if others else ''}.",
            next_step="Have another trusted key sign it: `remit package sign` adds a signature to "
            "the one that is there.",
        )
    code = next(code for code in reasons if code in ignored)
    steps = {
        "revoked_key": "Get a version that another key signed, and ask its maker what happened.",
        "key_not_for_package": "If the key's owner may sign this package, name it: `remit package "
        "trust add … --packages`.",
        "wrong_key": "If you know whose key it is and trust it, `remit package trust add` it; "
        "compare the whole key with its owner by another way.",
    }
    raise SignatureError(
        code,
        f"No key that is trusted for {package_id} signed it ({others}).",
        next_step=steps[code],
    )


def _list(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _MAX_NAMED
    return ", ".join(distinct[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
