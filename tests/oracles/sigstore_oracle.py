"""Verify a C2SP tlog-proof with sigstore: ``python sigstore_oracle.py PROOF RECORD VKEY``.

sigstore's own: parsing the checkpoint (``SignedCheckpoint``), choosing the signature line and
checking it (``verify_checkpoint``, ``Keyring``), index < size (its model), the leaf hash, the
length of the path, the walk up and the comparison with the root (``verify_merkle_inclusion``).
This script's own: splitting the proof file, reading the verifier key, and what sigstore leaves
open: canonical base64 and numbers, the origin and the name on the signature.

sigstore files keys under SHA-256(DER); C2SP key ids are SHA-256(name || LF || 0x01 || key)[:4].
sigstore picks the line whose id starts the log id it is given and, when the key ring has no such
id, tries every key. So the log id is the C2SP id here, and the ring holds the one trusted key.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sigstore._internal.merkle import verify_merkle_inclusion
from sigstore._internal.rekor.checkpoint import SignedCheckpoint, verify_checkpoint
from sigstore._internal.trust import Keyring, RekorKeyring
from sigstore.errors import Error
from sigstore.models import TransparencyLogEntry
from sigstore_models.common.v1 import PublicKey, PublicKeyDetails
from sigstore_models.rekor.v1 import TransparencyLogEntry as RekorEntry

PROOF = re.compile(r"c2sp\.org/tlog-proof@v1\n(?:extra .+\n)?index (\d+)\n((?:\S+\n)*)\n((?s:.+))")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def verify(proof: str, record: bytes, vkey: str) -> None:
    name, key_hash, text = vkey.split("+", 2)
    key = base64.b64decode(text, validate=True)
    key_id = hashlib.sha256(name.encode() + b"\n" + key).digest()[:4]
    if key[:1] != b"\x01" or key_id.hex() != key_hash:
        raise ValueError("not an Ed25519 verifier key, or not its hash")
    public = Ed25519PublicKey.from_public_bytes(key[1:])
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ed25519 = PublicKeyDetails.PKIX_ED25519
    ring = RekorKeyring(Keyring([PublicKey(raw_bytes=b64(der).encode(), key_details=ed25519)]))

    if (match := PROOF.fullmatch(proof)) is None or str(int(match[1])) != match[1]:
        raise ValueError("not a tlog-proof")
    index, path, envelope = match[1], match[2].split(), match[3]
    if any(len(line) != 44 or b64(base64.b64decode(line)) != line for line in path):
        raise ValueError("a hash of the path is not 32 bytes in canonical base64")
    signed = SignedCheckpoint.from_text(envelope)
    note, head = signed.signed_note, signed.checkpoint
    size, root = str(head.log_size), b64(bytes.fromhex(head.log_hash))
    if not note.note.startswith(f"{name}\n{size}\n{root}\n"):
        raise ValueError("the checkpoint is of another origin, or not in canonical form")
    if {line.name for line in note.signatures if line.sig_hash == key_id} - {name}:
        raise ValueError("the signature is under another name")
    inclusion = {"log_index": index, "root_hash": root, "tree_size": size, "hashes": path}
    fields: dict[str, object] = {"log_index": index, "log_id": {"key_id": b64(key_id)}}
    fields["canonicalized_body"] = b64(record)
    fields["inclusion_proof"] = inclusion | {"checkpoint": {"envelope": envelope}}
    fields["kind_version"] = {"kind": "", "version": ""}
    entry = TransparencyLogEntry(RekorEntry.from_dict(fields))
    verify_checkpoint(ring, entry)
    verify_merkle_inclusion(entry)


if __name__ == "__main__":
    proof, record, vkey = (Path(name).read_bytes() for name in sys.argv[1:])
    try:
        verify(proof.decode(), record, vkey.decode().strip())
    except (Error, ValueError) as problem:
        sys.exit(f"not verified: {problem}")
    print("verified")
