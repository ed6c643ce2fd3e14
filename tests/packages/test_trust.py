"""Whose signatures count, and what becomes of hostile ones."""

from __future__ import annotations

import base64
import copy
import json
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError
from remit.kernel.schemas import shipped_schema
from remit.packages import Manifest
from remit.packages.errors import PackageKeyError, SignatureError, TrustError
from remit.packages.package_key import PackageKey
from remit.packages.signatures import sign
from remit.packages.trust import TrustPolicy
from remit.packages.verification import Signed, check_envelope
from tests.packages.making import FILES, encoded, manifest_of, sha256
from tests.packages.test_signing import key_of

NOW = datetime(2030, 6, 1, tzinfo=UTC)
MANIFEST = Manifest.parse(encoded(manifest_of(FILES)))
DIGEST = sha256(b"an archive")
MAX_BYTES = 100_000


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PackageKey]:
    place = tmp_path_factory.mktemp("keys")
    return {
        name: key_of(place / f"{name}.pem", bytes([number]) * 32, name)
        for number, name in enumerate(("anna", "ben", "carl", "dora"), 1)
    }


def trusting(*keys: PackageKey, threshold: int = 1) -> TrustPolicy:
    policy = TrustPolicy()
    for key in keys:
        policy = policy.with_key(key.public, key.name, at=NOW)
    return policy.with_threshold(threshold)


def signed_by(*keys: PackageKey, **more: Any) -> bytes:
    envelope = sign(DIGEST, MANIFEST, keys[0], **more)
    for key in keys[1:]:
        envelope = sign(DIGEST, MANIFEST, key, envelope=envelope)
    return envelope


def check(envelope: bytes, policy: TrustPolicy, **changed: Any) -> Signed:
    given = {
        "archive_digest": DIGEST, "manifest": MANIFEST, "now": NOW, "max_bytes": MAX_BYTES,
    }  # fmt: skip
    return check_envelope(envelope, policy=policy, **{**given, **changed})


def refused(envelope: bytes, policy: TrustPolicy, **changed: Any) -> SignatureError:
    with pytest.raises(SignatureError) as caught:
        check(envelope, policy, **changed)
    assert caught.value.next_step
    assert caught.value.message.isprintable()
    return caught.value


# -- what counts -----------------------------------------------------------------------


def test_one_trusted_key_is_enough(keys: dict[str, PackageKey]) -> None:
    expires = NOW + timedelta(seconds=1)
    envelope = signed_by(keys["anna"], expires=expires, source={"distribution": "remit"})
    found = check(envelope, trusting(keys["anna"]))
    assert found == Signed(
        (keys["anna"].key_id,), 1, expires, sha256(envelope), {"distribution": "remit"}
    )


def test_nobody_is_trusted_at_first(keys: dict[str, PackageKey]) -> None:
    error = refused(signed_by(keys["anna"]), TrustPolicy())
    assert (error.code, keys["anna"].key_id in error.message) == ("wrong_key", True)


def test_strangers_beside_a_trusted_key_are_passed_over(keys: dict[str, PackageKey]) -> None:
    found = check(signed_by(keys["anna"], keys["ben"]), trusting(keys["ben"]))
    assert found.keyids == (keys["ben"].key_id,)


def test_a_threshold_counts_keys_not_signatures(keys: dict[str, PackageKey]) -> None:
    anna, ben, carl, dora = keys.values()
    policy = trusting(anna, ben, carl, threshold=2)
    both = check(signed_by(anna, carl), policy)
    assert (both.threshold, set(both.keyids)) == (2, {anna.key_id, carl.key_id})
    assert len(check(signed_by(anna, ben, carl, dora), policy).keyids) == 3
    error = refused(signed_by(anna, dora), policy)
    assert (error.code, "1 of the 2" in error.message) == ("below_threshold", True)
    assert dora.key_id in error.message
    twice = json.loads(signed_by(anna))
    twice["signatures"] *= 2
    assert refused(canonical_json(twice), policy).code == "below_threshold"
    respelled = json.loads(signed_by(anna))
    url_safe = respelled["signatures"][0]["sig"].replace("+", "-").replace("/", "_")
    respelled["signatures"].append({"keyid": anna.key_id, "sig": url_safe})
    assert refused(canonical_json(respelled), policy).code == "below_threshold"


def test_a_threshold_of_the_past_can_be_asked_for(keys: dict[str, PackageKey]) -> None:
    policy = trusting(keys["anna"], keys["ben"], threshold=2)
    envelope = signed_by(keys["anna"])
    assert check(envelope, policy, installed=True, threshold=1).threshold == 1
    assert refused(envelope, policy, installed=True).code == "below_threshold"
    assert refused(envelope, TrustPolicy(), threshold=0).code == "wrong_key"


def test_a_key_speaks_for_its_packages_alone(keys: dict[str, PackageKey]) -> None:
    for pattern, counts in (
        ("PKG-EXAMPLE-*", True), ("*", True), ("PKG-EXAMPLE-001", True), ("*-001", True),
        ("PKG-EXAMPLE", False), ("PKG-OTHER-*", False), ("PKG-EXAMPLE-0*2", False),
    ):  # fmt: skip
        policy = TrustPolicy().with_key(keys["anna"].public, "anna", [pattern])
        if counts:
            assert check(signed_by(keys["anna"]), policy).keyids
        else:
            assert refused(signed_by(keys["anna"]), policy).code == "key_not_for_package"


def test_a_retired_key_signs_nothing_new(keys: dict[str, PackageKey]) -> None:
    envelope = signed_by(keys["anna"])
    policy = trusting(keys["anna"], keys["ben"]).with_status(keys["anna"].key_id, "retired")
    error = refused(envelope, policy)
    assert (error.code, "retired" in error.message) == ("wrong_key", True)
    assert check(envelope, policy, installed=True).keyids == (keys["anna"].key_id,)


def test_a_revoked_key_never_counts(keys: dict[str, PackageKey]) -> None:
    anna, ben = keys["anna"], keys["ben"]
    policy = trusting(anna, ben).with_status(anna.key_id, "revoked")
    for installed in (False, True):
        assert refused(signed_by(anna), policy, installed=installed).code == "revoked_key"
        assert check(signed_by(anna, ben), policy, installed=installed).keyids == (ben.key_id,)
    two = trusting(anna, ben, keys["carl"]).with_status(anna.key_id, "revoked").with_threshold(2)
    error = refused(signed_by(anna, ben), two)
    assert (error.code, "revoked: " in error.message) == ("below_threshold", True)


def test_a_signature_expires(keys: dict[str, PackageKey]) -> None:
    policy = trusting(keys["anna"])
    envelope = signed_by(keys["anna"], expires=NOW)
    assert refused(envelope, policy).code == "expired"
    assert check(envelope, policy, now=NOW - timedelta(seconds=1)).expires == NOW
    elsewhere = timezone(timedelta(hours=-5))
    assert check(envelope, policy, now=(NOW - timedelta(seconds=1)).astimezone(elsewhere))
    assert check(envelope, policy, installed=True).expires == NOW
    assert check(signed_by(keys["anna"]), policy, now=NOW + timedelta(days=9999)).expires is None
    with pytest.raises(InvalidInputError):
        check(envelope, policy, now=datetime(2030, 1, 1))


def test_it_is_for_one_archive_only(keys: dict[str, PackageKey]) -> None:
    policy, envelope = trusting(keys["anna"]), signed_by(keys["anna"])
    other = Manifest.parse(encoded(manifest_of(FILES, version="1.2.1")))
    renamed = Manifest.parse(encoded(manifest_of(FILES, package_id="PKG-OTHER-001")))
    retitled = Manifest.parse(encoded(manifest_of(FILES, title="Another")))
    for changed, what in (
        ({"archive_digest": sha256(b"another")}, "archive"),
        ({"manifest": other}, "version"),
        ({"manifest": renamed}, "package"),
        ({"manifest": retitled}, "manifest"),
    ):
        error = refused(envelope, policy, **changed)
        assert (error.code, f"its {what} is" in error.message) == ("wrong_subject", True)


def test_the_name_of_the_archive_counts_too(keys: dict[str, PackageKey]) -> None:
    told = statement()
    told["subject"][0]["name"] = "PKG-EXAMPLE-001-9.0.0.tar.gz"
    envelope = signing_anything(json.dumps(told).encode(), keys["anna"])
    assert refused(envelope, trusting(keys["anna"])).code == "wrong_subject"


# -- what is altered or hostile --------------------------------------------------------


def test_an_altered_payload_or_signature(keys: dict[str, PackageKey]) -> None:
    policy = trusting(keys["anna"], keys["ben"])
    told = json.loads(signed_by(keys["anna"], keys["ben"]))
    payload = base64.b64decode(told["payload"]).replace(b"1.2.0", b"9.9.9")
    altered = {**told, "payload": base64.b64encode(payload).decode()}
    assert refused(canonical_json(altered), policy).code == "bad_signature"
    # One good signature does not make up for a bad one of a key that is trusted.
    for place in (0, 1):
        spoiled = copy.deepcopy(told)
        spoiled["signatures"][place]["sig"] = base64.b64encode(bytes(64)).decode()
        assert refused(canonical_json(spoiled), policy).code == "bad_signature"
    # To whom nobody listens may say anything: the second is spoiled, the first is good.
    first = next(key for key in keys.values() if key.key_id == told["signatures"][0]["keyid"])
    assert check(canonical_json(spoiled), trusting(first)).keyids == (first.key_id,)


def test_a_key_cannot_borrow_the_id_of_another(keys: dict[str, PackageKey]) -> None:
    told = json.loads(signed_by(keys["dora"]))
    told["signatures"][0]["keyid"] = keys["anna"].key_id
    assert refused(canonical_json(told), trusting(keys["anna"])).code == "bad_signature"


NOBODY = b'{"payload":"","payloadType":"application/vnd.in-toto+json","signatures":[]}'


@pytest.mark.parametrize("data", [b"", b" \n", NOBODY])
def test_nothing_is_signed(data: bytes) -> None:
    assert refused(data, TrustPolicy()).code == "unsigned"


def _set(*place: Any, to: Any) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        for part in place[:-1]:
            value = value[part]
        value[place[-1]] = to

    return change


BAD_ENVELOPES = [
    _set("payloadType", to="application/vnd.in-toto+json; charset=utf-8"),
    _set("payloadType", to=None),
    _set("payload", to="%%%"),
    _set("payload", to="e30"),
    _set("payload", to=7),
    _set("payload", to="ä"),
    _set("signatures", to={}),
    _set("signatures", to=None),
    _set("signatures", 0, to="x"),
    _set("signatures", 0, to=[]),
    _set("signatures", 0, "keyid", to=None),
    _set("signatures", 0, "keyid", to="\ud800"),
    _set("signatures", 0, "keyid", to="\x1b[2J"),
    _set("signatures", 0, "sig", to="AAAA"),
    _set("signatures", 0, "sig", to="\ud800"),
    _set("signatures", 0, "cert", to="x"),
    _set("signatures", 0, to={"sig": "AAAA"}),
    _set("keys", to=[]),
    _set("payloadTyp\u0435", to="with a Cyrillic letter"),
]


@pytest.mark.parametrize("change", BAD_ENVELOPES)
def test_envelopes_that_are_none(keys: dict[str, PackageKey], change: Callable[..., None]) -> None:
    told = json.loads(signed_by(keys["anna"]))
    change(told)
    data = json.dumps(told).encode()
    assert refused(data, trusting(keys["anna"])).code == "bad_envelope"


BAD_STATEMENTS = [
    _set("_type", to="https://in-toto.io/Statement/v0.1"),
    _set("predicateType", to="https://slsa.dev/provenance/v1"),
    _set("predicateType", to=["urn:remit:package:1"]),
    _set("subject", to=[]),
    _set("subject", to={}),
    _set("subject", 0, "uri", to="https://a.example"),
    _set("subject", 0, "digest", to={"sha256": "A" * 64}),
    _set("subject", 0, "digest", to={"sha256": DIGEST}),
    _set("subject", 0, "digest", "sha512", to="a"),
    _set("subject", 0, "digest", to={}),
    _set("subject", 0, "name", to=None),
    _set("predicate", to=None),
    _set("predicate", "approved", to="true"),
    _set("predicate", "version", to=1),
    _set("predicate", "manifest_sha256", to="a" * 64),
    _set("predicate", "expires", to=None),
    _set("predicate", "expires", to="2031-01-01"),
    _set("predicate", "expires", to="2031-13-01T00:00:00Z"),
    _set("predicate", "expires", to="0000-01-01T00:00:00Z"),
    _set("predicate", "expires", to="2031-01-01T00:00:00+00:00"),
    _set("predicate", "source", to=[]),
    _set("predicate", "source", to={"a": {"b": "c"}}),
    _set("predicate", "source", to={"a": "\u202e"}),
    lambda value: value["subject"].append(value["subject"][0]),
    lambda value: value["predicate"].pop("version"),
    lambda value: value.pop("subject"),
]


def signing_anything(payload: bytes, key: PackageKey) -> bytes:
    """What a trusted key can be made to sign by another program."""
    kind = b"application/vnd.in-toto+json"
    pae = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    signature = bytes.fromhex(key.signer.sign(pae).signature)
    return json.dumps(
        {
            "payload": base64.urlsafe_b64encode(payload).decode(),
            "payloadType": kind.decode(),
            "signatures": [
                {"keyid": key.key_id, "sig": base64.urlsafe_b64encode(signature).decode()}
            ],
        }
    ).encode()


def statement() -> dict[str, Any]:
    return {
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


def test_another_program_can_sign(keys: dict[str, PackageKey]) -> None:
    envelope = signing_anything(json.dumps(statement(), indent=1).encode(), keys["anna"])
    assert check(envelope, trusting(keys["anna"])).keyids == (keys["anna"].key_id,)


@pytest.mark.parametrize("change", BAD_STATEMENTS)
def test_statements_that_are_none(keys: dict[str, PackageKey], change: Callable[..., None]) -> None:
    told = statement()
    change(told)
    envelope = signing_anything(json.dumps(told).encode(), keys["anna"])
    assert refused(envelope, trusting(keys["anna"])).code == "bad_envelope"


def test_a_key_twice_is_no_json_here(keys: dict[str, PackageKey]) -> None:
    policy = trusting(keys["anna"])
    twice = json.dumps(statement()).replace(
        '"version": "1.2.0"', '"version": "0", "version": "1.2.0"'
    )
    assert refused(signing_anything(twice.encode(), keys["anna"]), policy).code == "bad_envelope"
    outer = signed_by(keys["anna"]).replace(b'{"payload":', b'{"payload":"e30=","payload":')
    assert refused(outer, policy).code == "bad_envelope"
    escaped = signed_by(keys["anna"]).replace(b'{"payload":', b'{"p\\u0061yload":"e30=","payload":')
    assert refused(escaped, policy).code == "bad_envelope"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff", b"\xef\xbb\xbf{}", b"null", b"[]", b'"x"', b"1e999", b"NaN", b"{", b"{}",
        b"[" * 90_000, b'{"a":' * 15_000, b"9" * 50_000, b"\x00",
        b'{"payload":' + b"[" * 50_000,
    ],
    ids=range(14),
)  # fmt: skip
def test_what_is_no_envelope_at_all(data: bytes) -> None:
    assert refused(data, TrustPolicy()).code == "bad_envelope"


def test_an_envelope_has_a_size(keys: dict[str, PackageKey]) -> None:
    envelope = signed_by(keys["anna"])
    assert check(envelope, trusting(keys["anna"]), max_bytes=len(envelope)).keyids
    error = refused(envelope, trusting(keys["anna"]), max_bytes=len(envelope) - 1)
    assert (error.code, str(len(envelope)) in error.message) == ("bad_envelope", True)


def test_thousands_of_signatures(keys: dict[str, PackageKey]) -> None:
    told = json.loads(signed_by(keys["anna"]))
    (good,) = told["signatures"]
    told["signatures"] = [{"keyid": f"{n:064x}", "sig": good["sig"]} for n in range(5000)]
    error = refused(canonical_json(told), trusting(keys["anna"]), max_bytes=2_000_000)
    assert (error.code, len(error.message) < 1000) == ("wrong_key", True)
    told["signatures"].append(good)
    assert check(canonical_json(told), trusting(keys["anna"]), max_bytes=2_000_000).keyids


_WORDS = st.sampled_from(["payload", "payloadType", "signatures", "keyid", "sig", "e30=", DIGEST])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | _WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | _WORDS, inner),
    max_leaves=12,
)
_FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_FUZZ
@given(st.binary(max_size=200) | _json.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_answered(keys: dict[str, PackageKey], data: bytes) -> None:
    with pytest.raises(SignatureError):
        check(data, trusting(keys["anna"]))


@_FUZZ
@given(_json, st.sampled_from(["_type", "subject", "predicateType", "predicate"]))
def test_any_signed_statement_is_answered(
    keys: dict[str, PackageKey], value: Any, place: str
) -> None:
    envelope = signing_anything(json.dumps({**statement(), place: value}).encode(), keys["anna"])
    with pytest.raises(SignatureError):
        check(envelope, trusting(keys["anna"]))


@_FUZZ
@given(st.data())
def test_a_changed_byte_never_passes_for_another_archive(
    keys: dict[str, PackageKey], data: st.DataObject
) -> None:
    """Whatever byte is changed: it is refused, or it was one that does not matter."""
    envelope = bytearray(signed_by(keys["anna"]))
    place = data.draw(st.integers(0, len(envelope) - 1))
    envelope[place] = data.draw(st.integers(0, 255))
    try:
        found = check(bytes(envelope), trusting(keys["anna"]))
    except SignatureError:
        return
    assert found.keyids == (keys["anna"].key_id,)
    for other in ({"archive_digest": sha256(b"x")}, {"now": NOW, "policy": TrustPolicy()}):
        with pytest.raises(SignatureError):
            check_envelope(
                bytes(envelope),
                **{
                    "archive_digest": DIGEST, "manifest": MANIFEST, "now": NOW,
                    "policy": trusting(keys["anna"]), **other,
                },
            )  # fmt: skip


# -- the policy ------------------------------------------------------------------------


def test_a_policy_is_saved_and_read_back(keys: dict[str, PackageKey], tmp_path: Path) -> None:
    path = tmp_path / "trust.json"
    assert TrustPolicy.load(path) == TrustPolicy()
    policy = trusting(*keys.values(), threshold=3)
    policy = policy.with_key(keys["ben"].public, "ben", ["PKG-B-*", "PKG-C-001"], at=NOW)
    policy.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert TrustPolicy.load(path) == policy
    assert policy.digest == sha256(path.read_bytes())
    assert [file.name for file in tmp_path.iterdir()] == ["trust.json"]
    told = json.loads(path.read_bytes())
    assert (told["schema_version"], told["threshold"], len(told["keys"])) == ("1.0", 3, 4)
    assert [one["key_id"] for one in told["keys"]] == sorted(key.key_id for key in keys.values())
    ben = next(one for one in told["keys"] if one["name"] == "ben")
    assert ben == {
        "key_id": keys["ben"].key_id, "name": "ben", "public": keys["ben"].public,
        "status": "active", "packages": ["PKG-B-*", "PKG-C-001"], "changed": "2030-06-01T00:00:00Z",
    }  # fmt: skip


def test_changes_leave_the_old_policy_as_it_was(keys: dict[str, PackageKey]) -> None:
    anna, ben = keys["anna"], keys["ben"]
    first = trusting(anna, ben)
    kept = first.encoded()
    later = NOW + timedelta(days=1)
    retired = first.with_status(anna.key_id, "retired", at=later)
    assert first.encoded() == kept
    assert {key.status for key in retired.keys} == {"active", "retired"}
    found = retired.find(anna.key_id[:8])
    assert (found.status, found.changed) == ("retired", "2030-06-02T00:00:00Z")
    # What changes nothing gives the same, times included.
    assert first.with_key(anna.public, "anna", at=later) is first
    assert retired.with_status(anna.key_id, "retired", at=later) is retired
    assert first.with_threshold(1) is first
    again = retired.with_key(anna.public, "anna", at=later)
    assert again.find(anna.key_id).status == "active"


def test_a_threshold_stays_within_reach(keys: dict[str, PackageKey]) -> None:
    anna, ben = keys["anna"], keys["ben"]
    two = trusting(anna, ben, threshold=2)
    for change in (
        lambda: two.with_status(anna.key_id, "retired"),
        lambda: two.with_status(anna.key_id, "revoked"),
        lambda: two.with_threshold(3),
        lambda: two.with_threshold(0),
        lambda: trusting(anna).with_status(anna.key_id, "revoked"),
        lambda: TrustPolicy().with_threshold(2),
    ):
        with pytest.raises(TrustError) as caught:
            change()
        assert caught.value.code == "threshold_unreachable"
        assert caught.value.next_step
    rotated = (
        two.with_key(keys["carl"].public, "carl")
        .with_status(anna.key_id, "retired")
        .with_status(anna.key_id, "revoked")
    )
    assert rotated.find(anna.key_id).status == "revoked"


def test_a_retired_key_can_be_revoked_however_few_are_left(keys: dict[str, PackageKey]) -> None:
    told = json.loads(
        trusting(keys["anna"], keys["ben"]).with_status(keys["anna"].key_id, "retired").encoded()
    )
    told["threshold"] = 2  # more than there are: nothing can be installed, and that is safe
    policy = TrustPolicy.parse(json.dumps(told).encode())
    assert (
        policy.with_status(keys["anna"].key_id, "revoked").find(keys["anna"].key_id).status
        == "revoked"
    )
    assert refused(signed_by(keys["anna"], keys["ben"]), policy).code == "below_threshold"


def test_a_revoked_key_stays_revoked(keys: dict[str, PackageKey]) -> None:
    anna = keys["anna"]
    policy = trusting(anna, keys["ben"]).with_status(anna.key_id, "revoked")
    assert policy.with_status(anna.key_id, "revoked") is policy
    for change in (
        lambda: policy.with_key(anna.public, "anna"),
        lambda: policy.with_status(anna.key_id, "retired"),
    ):
        with pytest.raises(TrustError) as caught:
            change()
        assert caught.value.code == "revoked_key"


def test_changes_that_cannot_be_made(keys: dict[str, PackageKey]) -> None:
    policy = trusting(keys["anna"], keys["ben"])

    def code(change: Callable[[], object]) -> str:
        with pytest.raises((TrustError, PackageKeyError)) as caught:
            change()
        return caught.value.code

    public = keys["carl"].public
    assert code(lambda: policy.with_key(public, "anna")) == "name_taken"
    assert code(lambda: policy.with_key(public, "a\nb")) == "bad_trust"
    assert code(lambda: policy.with_key(public, "")) == "bad_trust"
    assert code(lambda: policy.with_key(public, "c", [])) == "bad_trust"
    assert code(lambda: policy.with_key(public, "c", ["pkg-*"])) == "bad_trust"
    assert code(lambda: policy.with_key("ed25519:x", "c")) == "bad_key"
    assert code(lambda: policy.with_status("0" * 64, "revoked")) == "no_such_key"
    assert code(lambda: policy.with_status(keys["anna"].key_id[:7], "revoked")) == "no_such_key"
    assert code(lambda: policy.find("")) == "no_such_key"


BAD_POLICIES = [
    _set("schema_version", to="2.0"),
    _set("threshold", to=0),
    _set("threshold", to=True),
    _set("threshold", to="1"),
    _set("comment", to="x"),
    _set("keys", 0, "status", to="trusted"),
    _set("keys", 0, "status", to="active "),
    _set("keys", 0, "note", to=""),
    _set("keys", 0, "packages", to="*"),
    _set("keys", 0, "packages", to=["PKG-A\n"]),
    _set("keys", 0, "name", to="a\u202eb"),
    _set("keys", 0, "key_id", to="0" * 64),
    _set("keys", 0, "public", to="ed25519:" + "0" * 64),
    _set("keys", 0, "public", to="ed25519:" + "0" * 63 + "\n"),
    _set("keys", 0, "changed", to="yesterday"),
    lambda value: value["keys"].reverse(),
    lambda value: value["keys"].append(value["keys"][-1]),
    lambda value: value["keys"].append({**value["keys"][-1], "name": "twin"}),
    lambda value: value["keys"][0].update(name=value["keys"][1]["name"]),
    lambda value: value.pop("threshold"),
]


@pytest.mark.parametrize("change", BAD_POLICIES)
def test_files_that_are_no_policy(
    keys: dict[str, PackageKey], tmp_path: Path, change: Callable[..., None]
) -> None:
    told = json.loads(trusting(keys["anna"], keys["ben"]).encoded())
    change(told)
    path = tmp_path / "trust.json"
    path.write_text(json.dumps(told))
    with pytest.raises(TrustError) as caught:
        TrustPolicy.load(path)
    assert caught.value.code == "bad_trust"
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[", b"[" * 99_999, b'{"keys":[],"keys":[]}', b"[]"]
)
def test_files_that_are_no_json(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "trust.json"
    path.write_bytes(data)
    with pytest.raises(TrustError) as caught:
        TrustPolicy.load(path)
    assert (caught.value.code, str(path) in caught.value.message) == ("bad_trust", True)
    path.unlink()
    path.mkdir()
    with pytest.raises(TrustError):
        TrustPolicy.load(path)
    with pytest.raises(TrustError):
        TrustPolicy().save(path)


def test_the_schema_describes_every_property() -> None:
    schema = shipped_schema("trust")

    def visit(inner: Any) -> None:
        assert inner["description"]
        if inner.get("type") == "object":
            assert inner["additionalProperties"] is False
            assert set(inner["required"]) == set(inner["properties"])
        for child in inner.get("properties", {}).values():
            visit(child)
        if "items" in inner:
            visit(inner["items"])

    visit(schema)
