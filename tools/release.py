"""Makes a release that others can check: archives, bill of materials, provenance.

``build`` writes into a folder the wheel, the source archive, the wheels of the distributions under
``extras/``, a CycloneDX bill of materials of what the wheel needs and the bootstrap (all made
twice: equal byte for byte), ``SHA256SUMS``, and an in-toto statement of provenance (SLSA v1) over
all of them in a DSSE envelope. ``verify`` checks such a folder. ``audit`` looks for known
vulnerabilities in everything that is locked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

_STATEMENT = "https://in-toto.io/Statement/v1"
_PROVENANCE = "https://slsa.dev/provenance/v1"
_PAYLOAD = "application/vnd.in-toto+json"
_BUILD_TYPE = "urn:remit:release:hatchling:v1"
_EXTRAS = Path(__file__).parents[1] / "extras"
_LOCKS = ("requirements/run.txt", "requirements/build.txt", "requirements/release.txt")


def build(out: Path, key: Path | None, python: str) -> None:
    """Write a release of the commit that is checked out into ``out``, which must be empty.

    Args:
        out: the folder.
        key: PEM file of the Ed25519 key that signs.
        python: a Python with what Remit needs; the wheel runs in it to make the bootstrap.
    """
    if _git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit("The checkout has changes that are in no commit: commit them first.")
    if out.exists() and any(out.iterdir()):
        raise SystemExit(f"{out} is not empty: remove what an earlier release left there.")
    commit, made = _git("log", "-1", "--format=%H %ct").split()
    started = datetime.now(UTC)
    with tempfile.TemporaryDirectory() as scratch:
        again = Path(scratch)
        for folder in (out, again):
            name = _made(folder, made, python)
        if differing := unequal(out, again):
            raise SystemExit(f"Two builds of one commit differ: {', '.join(differing)}.")
    write_sums(out)
    attest(out, name, commit, started, key)
    print(f"{out}: a release of commit {commit[:12]}, "
          f"provenance {'signed' if key else 'NOT SIGNED (give --key)'}")  # fmt: skip


def _made(folder: Path, epoch: str, python: str) -> str:
    """Make the archives, the bill of materials and the bootstrap; return name and version."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    _run("-m", "hatchling", "build", "-d", str(folder.resolve()), env=environment)
    [wheel] = folder.glob("*.whl")
    name = "-".join(wheel.name.split("-")[:2])
    _run("-m", "cyclonedx_py", "requirements", "requirements/run.txt",
         "--pyproject", "pyproject.toml", "--output-reproducible", "--validate",
         "-o", str(folder / f"{name}.cdx.json"), env=environment)  # fmt: skip
    with tempfile.TemporaryDirectory() as place, zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
        _run("-m", "remit", "bootstrap", "build",
             "--out", str((folder / f"{name}.bootstrap.tar.gz").resolve()),
             env={**environment, "PYTHONPATH": place}, python=python, cwd=place)  # fmt: skip
    build_extras(folder, environment)
    return name


def build_extras(folder: Path, environment: dict[str, str]) -> None:
    """Write the wheel of each distribution under ``extras/`` into ``folder``."""
    for extra in sorted(path.parent for path in _EXTRAS.glob("*/pyproject.toml")):
        _run("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder.resolve()),
             env=environment, cwd=str(extra))  # fmt: skip


def unequal(one: Path, other: Path) -> list[str]:
    """The files that are not in both folders with the same bytes."""
    names = {path.name for folder in (one, other) for path in folder.iterdir()}
    return sorted(
        name
        for name in names
        if not all((folder / name).is_file() for folder in (one, other))
        or _sha256(one / name) != _sha256(other / name)
    )


def write_sums(out: Path) -> None:
    """Write the SHA-256 of every file, for ``sha256sum --check SHA256SUMS``."""
    lines = [f"{_sha256(path)}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(lines), "utf-8")


def attest(out: Path, name: str, commit: str, started: datetime, key: Path | None) -> None:
    """Write the provenance of every file in ``out``, signed where there is a ``key``."""
    statement = {
        "_type": _STATEMENT,
        "subject": [
            {"name": path.name, "digest": {"sha256": _sha256(path)}}
            for path in sorted(out.iterdir())
        ],
        "predicateType": _PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {"commit": commit},
                "internalParameters": {"python": platform.python_version()},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    *({"name": name, "digest": {"sha256": _sha256(Path(name))}} for name in _LOCKS),
                ],
            },
            "runDetails": {
                "builder": {"id": "urn:remit:tools.release"},
                "metadata": {"startedOn": _stamp(started), "finishedOn": _stamp(datetime.now(UTC))},
            },
        },
    }
    envelope = Envelope(json.dumps(statement, indent=1).encode(), _PAYLOAD, {})
    if key is not None:
        envelope.sign(_signer(key))
    (out / f"{name}.intoto.jsonl").write_text(json.dumps(envelope.to_dict()) + "\n", "utf-8")


def verify(out: Path, key: str | None) -> None:
    """Check every file in ``out`` against its provenance, and that against ``key``."""
    try:
        [file] = out.glob("*.intoto.jsonl")
        envelope = Envelope.from_dict(json.loads(file.read_text("utf-8")))
        statement = json.loads(envelope.payload)
        expected = {item["name"]: item["digest"]["sha256"] for item in statement["subject"]}
        kind = statement["_type"], statement["predicateType"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise SystemExit(f"{out} holds no release with a readable provenance: {error}") from None
    if kind != (_STATEMENT, _PROVENANCE) or envelope.payload_type != _PAYLOAD:
        raise SystemExit(f"{file.name} is no statement of provenance.")
    found = {path.name: _sha256(path) for path in out.iterdir() if path != file}
    if wrong := sorted(
        name for name in {*expected, *found} if expected.get(name) != found.get(name)
    ):
        raise SystemExit(
            f"Not what the provenance names: {', '.join(wrong)}. Do not use this release."
        )
    if key is not None:
        try:
            public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.removeprefix("ed25519:")))
        except ValueError:
            raise SystemExit("The key is no word of the form ed25519:<64 hex digits>.") from None
        try:
            envelope.verify([SSlibKey.from_crypto(public)], 1)
        except (VerificationError, InvalidSignature):
            raise SystemExit("That key did not sign this provenance. Do not use it.") from None
    print(f"{out}: {len(expected)} files are what the provenance names, "
          f"{'signed by that key' if key else 'signature not checked (give --key)'}")  # fmt: skip


def audit() -> None:
    """Look up known vulnerabilities; say so where the advisories cannot be reached."""
    locks = [item for name in ("build", "run", "dev", "local", "release")
             for item in ("-r", f"requirements/{name}.txt")]  # fmt: skip
    checked = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip", "-f", "json",
         "--progress-spinner", "off", *locks],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        found: list[dict[str, Any]] = json.loads(checked.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = checked.stderr.strip().rpartition("\n")[2]
        print(f"NOT AUDITED: the advisories could not be reached ({last}).")
        return
    skipped = [item["name"] for item in found if "skip_reason" in item]
    if len(skipped) == len(found):
        print("NOT AUDITED: the advisories could not be reached.")
        return
    for item in found:
        for problem in item.get("vulns", ()):
            fixed = ", ".join(problem["fix_versions"]) or "none yet"
            print(f"{item['name']} {item['version']}: {problem['id']}, fixed in: {fixed}")
    print(f"{len(found) - len(skipped)} of {len(found)} locked packages audited")
    if any(item.get("vulns") for item in found):
        raise SystemExit("Run `make lock UPGRADE=--upgrade`, or say in SECURITY.md why not.")


def _signer(path: Path) -> CryptoSigner:
    return CryptoSigner(load_pem_private_key(path.read_bytes(), None))  # type: ignore[arg-type]


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], capture_output=True, text=True, check=True
    ).stdout.strip()


def _run(
    *words: str, env: dict[str, str], python: str = sys.executable, cwd: str | None = None
) -> None:
    done = subprocess.run([python, *words], env=env, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words[:2])} failed:\n{done.stderr}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("build", help="make a release of the commit that is checked out")
    making.add_argument("--key", type=Path, help="PEM file of the Ed25519 key that signs")
    making.add_argument(
        "--python", default=sys.executable, help="a Python with what Remit needs (default: this)"
    )
    checking = commands.add_parser("verify", help="check a release")
    checking.add_argument("--key", help="the public key, ed25519:<64 hex digits>")
    for command in (making, checking):
        command.add_argument(
            "--out", type=Path, default=Path("dist"), help="folder (default: dist)"
        )
    commands.add_parser("audit", help="known vulnerabilities of what is locked")
    given = parser.parse_args()
    if given.command == "audit":
        audit()
    elif given.command == "build":
        build(given.out, given.key, given.python)
    else:
        verify(given.out, given.key)


if __name__ == "__main__":
    main()
