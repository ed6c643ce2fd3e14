"""Keys of packages and the envelopes they make."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from remit.kernel.errors import InvalidInputError
from remit.packages import Manifest, pack
from remit.packages.errors import PackageKeyError, SignatureError
from remit.packages.package_key import PackageKey, public_key
from remit.packages.signatures import read_envelope, sign
from tests.packages.making import FILES, directory_of, encoded, manifest_of, sha256

MANIFEST = Manifest.parse(encoded(manifest_of(FILES)))
DIGEST = sha256(b"an archive")
SEED = bytes(range(32))
FROZEN = b"""{
  "package_id": "PKG-FROZEN-001", "version": "1.0.0", "schema_version": "1.0", "title": "Frozen",
  "package_type": "agent", "spec_id": "SPEC-FROZEN-001", "framework_id": "FMWK-FROZEN-001",
  "plane_id": "ho1", "layer": 0, "dependencies": [], "permissions": {}, "assets": []
}"""


def key_of(path: Path, seed: bytes = SEED, name: str = "team") -> PackageKey:
    """A key whose private half is known beforehand, so that its signatures are too."""
    private = Ed25519PrivateKey.from_private_bytes(seed)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(f"Remit package key: {name}\n".encode() + pem)
    path.chmod(0o600)
    return PackageKey.load(path)


# -- keys ------------------------------------------------------------------------------


def test_a_key_is_made_kept_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "team.pem"
    made = PackageKey.create(path, "Ünser Team")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["team.pem"]
    again = PackageKey.load(path)
    assert (again.name, again.key_id, again.public) == ("Ünser Team", made.key_id, made.public)
    assert re.fullmatch("ed25519:[0-9a-f]{64}", made.public)
    assert PackageKey.create(tmp_path / "other.pem", "b").public != made.public
    # Any library reads the file, the name above the key notwithstanding.
    private = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(private, Ed25519PrivateKey)
    assert f"ed25519:{private.public_key().public_bytes_raw().hex()}" == made.public


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not there")
def test_openssl_reads_the_file(tmp_path: Path) -> None:
    made = PackageKey.create(tmp_path / "k.pem", "team")
    told = subprocess.run(
        ["openssl", "pkey", "-in", tmp_path / "k.pem", "-noout", "-text"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    public = re.sub("[^0-9a-f]", "", told.partition("pub:")[2])
    assert made.public == f"ed25519:{public}"


def test_the_id_follows_from_the_public_key(tmp_path: Path) -> None:
    made = PackageKey.create(tmp_path / "k.pem", "team")
    value = made.public.removeprefix("ed25519:")
    described = f'{{"keytype":"ed25519","keyval":{{"public":"{value}"}},"scheme":"ed25519"}}'
    assert made.key_id == hashlib.sha256(described.encode()).hexdigest()
    assert public_key(made.public).keyid == made.key_id


def test_no_key_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "k.pem"
    made = PackageKey.create(path, "first")
    with pytest.raises(PackageKeyError) as caught:
        PackageKey.create(path, "second")
    assert caught.value.code == "key_exists"
    assert PackageKey.load(path).key_id == made.key_id
    assert [file.name for file in tmp_path.iterdir()] == ["k.pem"]
    (tmp_path / "link.pem").symlink_to(tmp_path / "nowhere.pem")
    with pytest.raises(PackageKeyError):
        PackageKey.create(tmp_path / "link.pem", "third")
    assert not (tmp_path / "nowhere.pem").exists()


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\x1b[31m", "x" * 101, "a\u202eb"])
def test_names_that_cannot_be_one(tmp_path: Path, name: str) -> None:
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

    assert code() == "key_missing"
    PackageKey.create(path, "team")
    whole = path.read_bytes()
    path.chmod(0o640)
    assert code() == "key_open"
    path.chmod(0o600)
    for content in (b"", b"\xff\xfe", whole[:60], b"-----BEGIN PRIVATE KEY-----\nAAAA\n"):
        path.write_bytes(content)
        assert code() == "bad_key"
    private = load_pem_private_key(whole, None)
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption

    other = X25519PrivateKey.generate()
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert code() == "bad_key"
    assert isinstance(private, Ed25519PrivateKey)
    hidden = BestAvailableEncryption(b"secret")
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden))
    assert code() == "bad_key"
    path.unlink()
    path.mkdir()
    path.chmod(0o700)
    assert code() == "bad_key"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PackageKeyError) as caught:
        PackageKey.create(tmp_path / "file" / "k.pem", "team")
    assert caught.value.code == "key_unwritable"


def test_a_key_without_a_name_signs_too(tmp_path: Path) -> None:
    path = tmp_path / "k.pem"
    PackageKey.create(path, "team")
    path.write_bytes(path.read_bytes().partition(b"\n")[2])
    assert PackageKey.load(path).name == ""


@pytest.mark.parametrize(
    "text",
    [
        "", "ed25519:", "ed25519:" + "A" * 64, "a" * 64, "ed25519:" + "a" * 64 + "\n",
        "x25519:" + "a" * 64,
    ],
)  # fmt: skip
def test_texts_that_are_no_public_key(text: str) -> None:
    with pytest.raises(PackageKeyError) as caught:
        public_key(text)
    assert caught.value.code == "bad_key"


# -- signing ---------------------------------------------------------------------------


def test_the_statement_says_what_was_signed(tmp_path: Path) -> None:
    key = key_of(tmp_path / "k.pem")
    expires = datetime(2031, 5, 6, 7, 8, 9, 999, UTC)
    source = {"distribution": "remit", "version": "0.7.0"}
    envelope = json.loads(sign(DIGEST, MANIFEST, key, expires=expires, source=source))
    assert set(envelope) == {"payload", "payloadType", "signatures"}
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    assert [one["keyid"] for one in envelope["signatures"]] == [key.key_id]
    assert json.loads(base64.b64decode(envelope["payload"])) == {
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
            "expires": "2031-05-06T07:08:09Z",
            "source": source,
        },
    }


def test_the_bytes_of_an_envelope_never_change(tmp_path: Path) -> None:
    key = key_of(tmp_path / "k.pem")
    assert key.public == (
        "ed25519:03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    )
    assert key.key_id == "63d00ee3cf4f5c61ad94efa696c68f13b608fe56ecea13fb144a6fd18e9235b9"
    frozen = Manifest.parse(FROZEN)
    envelope = sign(DIGEST, frozen, key)
    assert envelope == sign(DIGEST, frozen, PackageKey.load(tmp_path / "k.pem"))
    known = "2a2a990fd02dc4b2755877641c853885b33027a6b912894a50fbe53097720acf"
    assert hashlib.sha256(envelope).hexdigest() == known


def test_several_sign_in_any_order(tmp_path: Path) -> None:
    a, b = (key_of(tmp_path / f"{n}.pem", bytes([n]) * 32) for n in (1, 2))

    def signed(*keys: PackageKey) -> bytes:
        envelope = b""
        for key in keys:
            envelope = sign(DIGEST, MANIFEST, key, envelope=envelope)
        return envelope

    both = signed(a, b)
    assert both == signed(b, a) == signed(a, b, a, b)
    assert {one.keyid for one in read_envelope(both).signatures} == {a.key_id, b.key_id}


def test_what_cannot_be_signed(tmp_path: Path) -> None:
    """A made-up envelope beside the archive must not get a trusted signature either."""
    a, b = (key_of(tmp_path / f"{n}.pem", bytes([n]) * 32) for n in (1, 2))
    envelope = sign(DIGEST, MANIFEST, a)
    assert sign(DIGEST, MANIFEST, b, envelope=envelope)
    frozen = Manifest.parse(FROZEN)
    for digest, manifest, given, code in (
        (sha256(b"x"), MANIFEST, {"envelope": envelope}, "wrong_subject"),
        (DIGEST, frozen, {"envelope": envelope}, "wrong_subject"),
        (DIGEST, MANIFEST, {"envelope": b" "}, "unsigned"),
        (DIGEST, MANIFEST, {"envelope": b"{}"}, "bad_envelope"),
        (DIGEST, MANIFEST, {"envelope": b"[" * 9999}, "bad_envelope"),
        ("a" * 64, MANIFEST, {}, "wrong_subject"),
        ("sha256:abc", MANIFEST, {}, "bad_envelope"),
        ("sha512:" + "a" * 64, MANIFEST, {}, "bad_envelope"),
        (DIGEST, MANIFEST, {"source": {"build": 7}}, "bad_envelope"),
    ):
        with pytest.raises(SignatureError) as caught:
            sign(digest, manifest, b, **given)  # type: ignore[arg-type]
        assert caught.value.code == code
    with pytest.raises(InvalidInputError):
        sign(DIGEST, MANIFEST, b, expires=datetime(2031, 1, 1))
    with pytest.raises(SignatureError):
        read_envelope(envelope, max_bytes=100)


# -- without Remit ---------------------------------------------------------------------


def page_code() -> dict[str, Any]:
    """The example of the page, run as whoever copies it would."""
    page = (Path(__file__).parents[2] / "docs/package-trust.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def test_an_outsider_verifies_it_with_cryptography_alone(tmp_path: Path) -> None:
    verify = page_code()["verify"]
    archive = pack(directory_of(tmp_path / "package"))
    key = PackageKey.create(tmp_path / "k.pem", "team")
    other = PackageKey.create(tmp_path / "o.pem", "other")
    digest = sha256(archive)
    envelope = sign(digest, MANIFEST, other, envelope=sign(digest, MANIFEST, key))
    for one in (key, other):
        assert verify(envelope, archive, one.public)["predicate"]["package_id"] == "PKG-EXAMPLE-001"
    stranger = PackageKey.create(tmp_path / "s.pem", "stranger")
    with pytest.raises(InvalidSignature):
        verify(envelope, archive, stranger.public)
    with pytest.raises(ValueError):
        verify(envelope, archive + b"x", key.public)
    told = json.loads(envelope)
    told["payload"] = base64.b64encode(
        base64.b64decode(told["payload"]).replace(b"1.2.0", b"1.2.1")
    ).decode()
    with pytest.raises(InvalidSignature):
        verify(json.dumps(told).encode(), archive, key.public)


def test_the_page_uses_nothing_of_ours() -> None:
    page = (Path(__file__).parents[2] / "docs/package-trust.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    assert imported == {"base64", "cryptography", "hashlib", "json"}


def test_a_statement_is_read_as_it_was_signed(tmp_path: Path) -> None:
    key = key_of(tmp_path / "k.pem")
    expires = datetime(2031, 1, 1, tzinfo=UTC)
    signed = read_envelope(sign(DIGEST, MANIFEST, key, expires=expires, source={"a": "b"}))
    said = signed.statement()
    assert (said.predicate.package_id, said.predicate.version) == ("PKG-EXAMPLE-001", "1.2.0")
    assert (said.archive_digest, said.predicate.manifest_sha256) == (DIGEST, MANIFEST.digest)
    assert (said.predicate.expires, said.predicate.source) == (expires, {"a": "b"})
    assert os.path.basename(said.subject[0].name) == said.subject[0].name
