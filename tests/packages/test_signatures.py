"""Keys of packages, the envelopes they make, whose signatures count, and what becomes of others."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import HealthCheck, given, settings, strategies as st

from remit.kernel.canonical import canonical_json
from remit.packages import (
    Manifest,
    PackageKey,
    PackageKeyError,
    SignatureError,
    check_envelope,
    pack,
    public_key,
    read_envelope,
    sign,
)
from remit.packages.trust import TrustPolicy
from tests.packages.making import (
    FILES,
    changing,
    directory_of,
    encoded,
    key_of,
    manifest_of,
    sha256,
    trusting,
)

MANIFEST = Manifest.parse(encoded(manifest_of(FILES)))
DIGEST = sha256(b"an archive")
TYPE = "application/vnd.in-toto+json"
STATEMENT: dict[str, Any] = {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [
        {
            "name": "PKG-EXAMPLE-001-1.2.0.tar.gz",
            "digest": {"sha256": DIGEST.removeprefix("sha256:")},
        }
    ],
    "predicateType": "urn:remit:package:1",
    "predicate": {
        "package_id": "PKG-EXAMPLE-001",
        "version": "1.2.0",
        "manifest_sha256": MANIFEST.digest,
    },
}


def signed_by(*keys: PackageKey, **more: Any) -> bytes:
    envelope = b""
    for key in keys:
        envelope = sign(DIGEST, MANIFEST, key, envelope=envelope, **more)
    return envelope


def signing_anything(payload: bytes, key: PackageKey) -> bytes:
    """What a trusted key can be made to sign by another program."""
    pae = b"DSSEv1 %d %b %d %b" % (len(TYPE), TYPE.encode(), len(payload), payload)
    sig = base64.urlsafe_b64encode(bytes.fromhex(key.signer.sign(pae).signature)).decode()
    text = base64.urlsafe_b64encode(payload).decode()
    envelope = {"payload": text, "payloadType": TYPE}
    return json.dumps(envelope | {"signatures": [{"keyid": key.key_id, "sig": sig}]}).encode()


def check(envelope: bytes, policy: TrustPolicy, **changed: Any) -> list[str]:
    """The ids of the keys that count."""
    usual = {"archive_digest": DIGEST, "manifest": MANIFEST, "max_bytes": 2_000_000}
    found = check_envelope(envelope, policy=policy, **{**usual, **changed})
    return list(found["keyids"])


def refused(envelope: bytes, policy: TrustPolicy, **changed: Any) -> SignatureError:
    with pytest.raises(SignatureError) as caught:
        check(envelope, policy, **changed)
    assert caught.value.next_step
    assert caught.value.message.isprintable()
    return caught.value


# -- keys ------------------------------------------------------------------------------


def test_a_key_is_made_kept_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "team.pem"
    made = PackageKey.create(path, "Ünser Team")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["team.pem"]
    again = PackageKey.load(path)
    assert (again.name, again.key_id, again.public) == ("Ünser Team", made.key_id, made.public)
    # Any library reads the file, the name above the key notwithstanding.
    private = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(private, Ed25519PrivateKey)
    value = private.public_key().public_bytes_raw().hex()
    assert made.public == f"ed25519:{value}"
    described = f'{{"keytype":"ed25519","keyval":{{"public":"{value}"}},"scheme":"ed25519"}}'
    assert made.key_id == hashlib.sha256(described.encode()).hexdigest()
    assert public_key(made.public).keyid == made.key_id
    if openssl := shutil.which("openssl"):
        command = [openssl, "pkey", "-in", path, "-noout", "-text"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert re.sub("[^0-9a-f]", "", said.partition("pub:")[2]) == value
    path.write_bytes(path.read_bytes().partition(b"\n")[2])
    assert (PackageKey.load(path).name, PackageKey.load(path).key_id) == ("", made.key_id)


def test_names_that_cannot_be_one(tmp_path: Path) -> None:
    for name in ("  ", "a\x1b[31m", "x" * 101, "a\u202eb"):
        with pytest.raises(PackageKeyError) as caught:
            PackageKey.create(tmp_path / "k.pem", name)
        assert caught.value.code == "bad_key_name"
    assert not list(tmp_path.iterdir())


def test_files_that_are_no_key(tmp_path: Path) -> None:
    path = tmp_path / "k.pem"

    def code() -> str:
        with pytest.raises(PackageKeyError) as caught:
            PackageKey.load(path)
        assert caught.value.next_step
        return caught.value.code

    def pem(key: Ed25519PrivateKey | X25519PrivateKey, hidden: KeySerializationEncryption) -> bytes:
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)

    assert code() == "key_missing"
    PackageKey.create(path, "team")
    right = path.read_bytes()
    path.chmod(0o640)
    assert code() == "key_open"
    path.chmod(0o600)
    for content in (
        b"",
        b"\xff\xfe",
        right[:60],
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n",
        pem(X25519PrivateKey.generate(), NoEncryption()),
        pem(Ed25519PrivateKey.generate(), BestAvailableEncryption(b"secret")),
    ):
        path.write_bytes(content)
        assert code() == "bad_key"
    path.unlink()
    path.mkdir(mode=0o700)
    assert code() == "bad_key"
    digits = "a" * 64
    for text in (
        "", "ed25519:", f"ed25519:{'A' * 64}", digits, f"ed25519:{digits}\n", f"x25519:{digits}",
    ):  # fmt: skip
        with pytest.raises(PackageKeyError) as caught:
            public_key(text)
        assert caught.value.code == "bad_key"


# -- signing ---------------------------------------------------------------------------


def test_the_statement_says_what_was_signed(anna: PackageKey) -> None:
    expires = datetime(2031, 5, 6, 7, 8, 9, 999, UTC)
    source = {"distribution": "remit", "version": "0.7.0"}
    data = signed_by(anna, expires=expires, source=source)
    envelope = json.loads(data)
    assert set(envelope) == {"payload", "payloadType", "signatures"}
    assert envelope["payloadType"] == TYPE
    assert [one["keyid"] for one in envelope["signatures"]] == [anna.key_id]
    predicate = STATEMENT["predicate"] | {"expires": "2031-05-06T07:08:09Z", "source": source}
    assert json.loads(base64.b64decode(envelope["payload"])) == STATEMENT | {"predicate": predicate}
    said = read_envelope(data).statement()
    assert (said.predicate.package_id, said.predicate.version) == ("PKG-EXAMPLE-001", "1.2.0")
    assert (said.archive_digest, said.predicate.manifest_sha256) == (DIGEST, MANIFEST.digest)
    assert (said.predicate.expires, said.predicate.source) == (
        expires.replace(microsecond=0),
        source,
    )


def test_the_bytes_of_an_envelope_never_change(tmp_path: Path) -> None:
    key = key_of(tmp_path / "k.pem", bytes(range(32)))
    assert key.public == "ed25519:03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    assert key.key_id == "63d00ee3cf4f5c61ad94efa696c68f13b608fe56ecea13fb144a6fd18e9235b9"
    value = {
        "package_id": "PKG-FROZEN-001", "version": "1.0.0", "schema_version": "1.0",
        "title": "Frozen", "package_type": "agent", "spec_id": "SPEC-FROZEN-001",
        "framework_id": "FMWK-FROZEN-001", "plane_id": "ho1", "layer": 0, "dependencies": [],
        "permissions": {}, "assets": [],
    }  # fmt: skip
    envelope = sign(DIGEST, Manifest.parse(encoded(value)), key)
    known = "2a2a990fd02dc4b2755877641c853885b33027a6b912894a50fbe53097720acf"
    assert hashlib.sha256(envelope).hexdigest() == known


def test_what_cannot_be_signed(keys: dict[str, PackageKey]) -> None:
    """A made-up envelope beside the archive must not get a trusted signature either."""
    envelope = signed_by(keys["anna"])
    other = Manifest.parse(encoded(manifest_of(FILES, title="Another")))
    for digest, manifest, more, code in (
        (sha256(b"x"), MANIFEST, {"envelope": envelope}, "wrong_subject"),
        (DIGEST, other, {"envelope": envelope}, "wrong_subject"),
        (DIGEST, MANIFEST, {"envelope": b" "}, "unsigned"),
        ("sha512:" + "a" * 64, MANIFEST, {}, "bad_envelope"),
        (DIGEST, MANIFEST, {"source": {"build": 7}}, "bad_envelope"),
    ):
        with pytest.raises(SignatureError) as caught:
            sign(digest, manifest, keys["ben"], **more)
        assert caught.value.code == code


def test_outsiders_verify_it_with_cryptography(keys: dict[str, PackageKey], tmp_path: Path) -> None:
    """The example of the page, run as whoever copies it would."""
    page = (Path(__file__).parents[2] / "docs/package-trust.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    assert imported == {"base64", "cryptography", "hashlib", "json"}
    names: dict[str, Any] = {}
    exec(code, names)
    verify = names["verify"]
    archive = pack(directory_of(tmp_path / "package"))
    digest = sha256(archive)
    envelope = sign(digest, MANIFEST, keys["ben"], envelope=sign(digest, MANIFEST, keys["anna"]))
    for name in ("anna", "ben"):
        said = verify(envelope, archive, keys[name].public)
        assert said["predicate"]["package_id"] == "PKG-EXAMPLE-001"
    with pytest.raises(InvalidSignature):
        verify(envelope, archive, keys["dora"].public)
    with pytest.raises(ValueError):
        verify(envelope, archive + b"x", keys["anna"].public)
    altered = json.loads(envelope)
    payload = base64.b64decode(altered["payload"]).replace(b"1.2.0", b"1.2.1")
    altered["payload"] = base64.b64encode(payload).decode()
    with pytest.raises(InvalidSignature):
        verify(json.dumps(altered).encode(), archive, keys["anna"].public)


# -- whose signatures count ------------------------------------------------------------


def test_one_trusted_key_is_enough(keys: dict[str, PackageKey]) -> None:
    anna, ben = keys["anna"], keys["ben"]
    envelope = signed_by(anna)
    policy = trusting(anna)
    found = check_envelope(envelope, policy=policy, archive_digest=DIGEST, manifest=MANIFEST)
    assert found == {
        "waived": False, "keyids": [anna.key_id], "threshold": 1,
        "envelope_sha256": sha256(envelope),
    }  # fmt: skip
    error = refused(envelope, TrustPolicy())
    assert (error.code, anna.key_id in error.message) == ("wrong_key", True)
    # Strangers beside a trusted key are ignored, and other programs may sign.
    assert check(signed_by(anna, ben), trusting(ben)) == [ben.key_id]
    foreign = signing_anything(json.dumps(STATEMENT, indent=1).encode(), anna)
    assert check(foreign, policy) == [anna.key_id]


def test_a_threshold_counts_keys_not_signatures(keys: dict[str, PackageKey]) -> None:
    anna, ben, carl, dora = keys.values()
    policy = trusting(anna, ben, carl, threshold=2)
    assert set(check(signed_by(anna, carl), policy)) == {anna.key_id, carl.key_id}
    assert len(check(signed_by(anna, ben, carl, dora), policy)) == 3
    error = refused(signed_by(anna, dora), policy)
    assert (error.code, "1 of the 2" in error.message) == ("below_threshold", True)
    assert dora.key_id in error.message
    for respell in (str, lambda sig: sig.replace("+", "-").replace("/", "_")):
        twice = json.loads(signed_by(anna))
        sig = respell(twice["signatures"][0]["sig"])
        twice["signatures"].append({"keyid": anna.key_id, "sig": sig})
        assert refused(canonical_json(twice), policy).code == "below_threshold"
    # What was asked for in the past may be less, but never nothing.
    assert check(signed_by(anna), policy, installed=True, threshold=1)
    assert refused(signed_by(anna), policy, installed=True).code == "below_threshold"
    assert refused(signed_by(anna), TrustPolicy(), threshold=0).code == "wrong_key"


@pytest.mark.parametrize(
    ("pattern", "counts"),
    [
        ("PKG-EXAMPLE-*", True), ("*", True), ("PKG-EXAMPLE-001", True), ("*-001", True),
        ("PKG-EXAMPLE", False), ("PKG-OTHER-*", False), ("PKG-EXAMPLE-0*2", False),
    ],
)  # fmt: skip
def test_a_key_vouches_for_its_packages_alone(anna: PackageKey, pattern: str, counts: bool) -> None:
    policy = TrustPolicy().with_key(anna.public, "anna", [pattern])
    if counts:
        assert check(signed_by(anna), policy)
    else:
        assert refused(signed_by(anna), policy).code == "key_not_for_package"


def test_retired_and_revoked_keys(keys: dict[str, PackageKey]) -> None:
    anna, ben = keys["anna"], keys["ben"]
    retired = trusting(anna, ben).with_status(anna.key_id, "retired")
    error = refused(signed_by(anna), retired)
    assert (error.code, "retired" in error.message) == ("wrong_key", True)
    assert check(signed_by(anna), retired, installed=True) == [anna.key_id]
    revoked = trusting(anna, ben).with_status(anna.key_id, "revoked")
    for installed in (False, True):
        assert refused(signed_by(anna), revoked, installed=installed).code == "revoked_key"
        assert check(signed_by(anna, ben), revoked, installed=installed) == [ben.key_id]
    two = trusting(anna, ben, keys["carl"]).with_status(anna.key_id, "revoked").with_threshold(2)
    error = refused(signed_by(anna, ben), two)
    assert (error.code, "revoked: " in error.message) == ("below_threshold", True)


def test_a_signature_expires(anna: PackageKey) -> None:
    policy, now = trusting(anna), datetime.now(UTC)
    expired = signed_by(anna, expires=now)
    assert refused(expired, policy).code == "expired"
    assert check(expired, policy, installed=True)
    zone = timezone(timedelta(hours=-5))
    for later in (now + timedelta(hours=1), (now + timedelta(hours=1)).astimezone(zone), None):
        assert check(signed_by(anna, expires=later), policy)


def test_it_is_for_one_archive_only(anna: PackageKey) -> None:
    def with_other(**changed: Any) -> dict[str, Any]:
        return {"manifest": Manifest.parse(encoded(manifest_of(FILES, **changed)))}

    for changed, what in (
        ({"archive_digest": sha256(b"another")}, "archive"),
        (with_other(version="1.2.1"), "version"),
        (with_other(package_id="PKG-OTHER-001"), "package"),
        (with_other(title="Another"), "manifest"),
    ):
        error = refused(signed_by(anna), trusting(anna), **changed)
        assert (error.code, f"its {what} is" in error.message) == ("wrong_subject", True)
    renamed = copy.deepcopy(STATEMENT)
    renamed["subject"][0]["name"] = "PKG-EXAMPLE-001-9.0.0.tar.gz"
    envelope = signing_anything(json.dumps(renamed).encode(), anna)
    assert refused(envelope, trusting(anna)).code == "wrong_subject"


# -- what is altered or hostile --------------------------------------------------------


def test_an_altered_payload_or_signature(keys: dict[str, PackageKey]) -> None:
    policy = trusting(keys["anna"], keys["ben"])
    right = json.loads(signed_by(keys["anna"], keys["ben"]))
    payload = base64.b64decode(right["payload"]).replace(b"1.2.0", b"9.9.9")
    altered = {**right, "payload": base64.b64encode(payload).decode()}
    assert refused(canonical_json(altered), policy).code == "bad_signature"
    # One good signature does not make up for a bad one of a key that is trusted.
    for place in (0, 1):
        spoiled = copy.deepcopy(right)
        spoiled["signatures"][place]["sig"] = base64.b64encode(bytes(64)).decode()
        assert refused(canonical_json(spoiled), policy).code == "bad_signature"
    # An unknown key's may be anything: the second is spoiled, the first is good.
    first = next(key for key in keys.values() if key.key_id == right["signatures"][0]["keyid"])
    assert check(canonical_json(spoiled), trusting(first)) == [first.key_id]
    # A key cannot borrow the id of another.
    borrowed = json.loads(signed_by(keys["dora"]))
    borrowed["signatures"][0]["keyid"] = keys["anna"].key_id
    assert refused(canonical_json(borrowed), policy).code == "bad_signature"


BAD_ENVELOPES = [
    changing("payloadType", to=f"{TYPE}; charset=utf-8"),
    *(changing("payload", to=value) for value in ("%%%", "e30", 7, "ä")),
    *(changing("signatures", 0, to=value) for value in ("x", [], {"sig": "AAAA"})),
    *(changing("signatures", 0, "sig", to=value) for value in ("AAAA", "\ud800")),
    changing("signatures", 0, "cert", to="x"),
    changing("payloadTyp\u0435", to="with a Cyrillic letter"),
]


BAD_STATEMENTS: list[Callable[..., Any]] = [
    changing("_type", to="https://in-toto.io/Statement/v0.1"),
    changing("predicateType", to="https://slsa.dev/provenance/v1"),
    changing("subject", to=[]),
    changing("subject", 0, "uri", to="https://a.example"),
    changing("subject", 0, "digest", to={"sha256": "A" * 64}),
    changing("predicate", "approved", to="true"),
    changing("predicate", "manifest_sha256", to="a" * 64),
    *(changing("predicate", "expires", to=one) for one in (None, "2031-13-01T00:00:00Z")),
    changing("predicate", "source", to={"a": "\u202e"}),
    lambda value: value["subject"].append(value["subject"][0]),
]


@pytest.mark.parametrize("change", BAD_ENVELOPES)
def test_envelopes_that_are_none(anna: PackageKey, change: Callable[..., None]) -> None:
    envelope = json.loads(signed_by(anna))
    change(envelope)
    assert refused(json.dumps(envelope).encode(), trusting(anna)).code == "bad_envelope"


def test_statements_that_are_none(anna: PackageKey) -> None:
    for change in BAD_STATEMENTS:
        statement = copy.deepcopy(STATEMENT)
        change(statement)
        envelope = signing_anything(json.dumps(statement).encode(), anna)
        assert refused(envelope, trusting(anna)).code == "bad_envelope"


def test_bytes_that_are_no_envelope(anna: PackageKey) -> None:
    right, policy = signed_by(anna), trusting(anna)
    inner = json.dumps(STATEMENT).replace('"version"', '"version": "0", "version"').encode()
    for data in (
        b"\xff", b"null", b"1e999", b"{", b"[" * 90_000, b"9" * 50_000,
        signing_anything(inner, anna),
        right.replace(b'{"payload":', b'{"payload":"e30=","payload":'),
        right.replace(b'{"payload":', b'{"p\\u0061yload":"e30=","payload":'),
    ):  # fmt: skip
        assert refused(data, policy).code == "bad_envelope"
    for data in (b"", b'{"payload":"","payloadType":"%b","signatures":[]}' % TYPE.encode()):
        assert refused(data, policy).code == "unsigned"
    assert check(right, policy, max_bytes=len(right))
    assert refused(right, policy, max_bytes=len(right) - 1).code == "bad_envelope"


_FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_FUZZ
@given(st.data())
def test_a_changed_byte_passes_for_no_other_archive(anna: PackageKey, data: st.DataObject) -> None:
    """Whatever byte is changed: it is refused, or it was one that does not matter."""
    changed = bytearray(signed_by(anna))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    envelope = bytes(changed)
    try:
        assert check(envelope, trusting(anna)) == [anna.key_id]
    except SignatureError:
        return
    refused(envelope, trusting(anna), archive_digest=sha256(b"x"))
    refused(envelope, TrustPolicy())
