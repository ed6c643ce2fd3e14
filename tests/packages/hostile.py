"""What must never be installed, and what is said instead; each case through the command line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from remit.cli.main import main
from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import RemitError
from remit.packages import Manifest, PackageError, PackageKey, package_lock, sign
from tests.packages.install.world import entries, tree
from tests.packages.making import archive_of as tar_archive, encoded, member
from tests.support.packages import archive_of, manifest_of

Command = list[str]
Make = Callable[["Stage"], Command]
Archive = Callable[["Stage"], str]


@dataclass(frozen=True)
class Case:
    """One thing that is tried.

    Attributes:
        make: prepares it and gives the command.
        code: what the error is called.
        word: what its message says, among other words.
        own_root: whether it needs a root that nobody uses after it.
    """

    name: str
    code: str
    word: str
    make: Make
    own_root: bool = False


@dataclass(frozen=True)
class Told:
    """What came of it."""

    code: str
    message: str
    next_step: str
    exit: int
    changed: list[str]
    entries: int

    @property
    def state(self) -> str:
        return "changed" if self.changed or self.entries else "unchanged"


class Stage:
    """A root, a place for archives, and keys."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root = root
        self.scratch = scratch
        self.number = 0
        scratch.mkdir(parents=True, exist_ok=True)

    def copy(self, top: Path) -> Stage:
        shutil.copytree(self.root, top / "root")
        return Stage(top / "root", top / "scratch")

    def write(self, data: bytes, name: str = "given") -> str:
        file = self.scratch / f"{name}.tar.gz"
        file.write_bytes(data)
        return str(file)

    def pack(
        self, files: dict[str, bytes], package_id: str = "PKG-MINE-001", **changes: Any
    ) -> str:
        """The archive of a sound package, in a file."""
        manifest = manifest_of(files, package_id, **changes)
        name = f"{package_id}-{manifest['version']}"
        shutil.rmtree(self.scratch / name, ignore_errors=True)
        return self.write(archive_of(self.scratch / name, files, manifest), name)

    def policy(self, version: str = "1.0.0", text: bytes = b"text", **changes: Any) -> str:
        return self.pack({"HOT/policy/mine.md": text}, version=version, **changes)

    def bring(self, *archives: str) -> None:
        """Install archives, whatever they ask for."""
        self.run(["install", *archives, "--dev", "--approve"])

    def bring_next(self, files: dict[str, bytes], **changes: Any) -> str:
        """Install the next version of one package, whatever it asks for; which one that is."""
        self.number += 1
        self.bring(self.pack(files, version=f"{self.number}.0.0", **changes))
        return f"{self.number}.0.0"

    def run(self, command: Command) -> None:
        exit_code, error, said = remit(self.root, command)
        if exit_code:
            raise AssertionError(f"{command}: {error or said}")

    def key(self, name: str, *, trusted: bool = True) -> PackageKey:
        file = self.scratch / f"{name}.pem"
        if file.exists():
            return PackageKey.load(file)
        key = PackageKey.create(file, name)
        if trusted:
            self.run(["trust", "add", key.public, "--name", name])
        return key

    def sign(self, archive: str, key: PackageKey, *, expires: datetime | None = None) -> str:
        """Put a signature beside an archive."""
        data = Path(archive).read_bytes()
        with tarfile.open(fileobj=io.BytesIO(data)) as opened_tar:
            first = opened_tar.extractfile("manifest.json")
            assert first is not None
            manifest = Manifest.parse(first.read())
        envelope = sign(f"sha256:{sha256_hex(data)}", manifest, key, expires=expires)
        Path(archive.removesuffix(".tar.gz") + ".intoto.json").write_bytes(envelope)
        return archive


def remit(root: Path, command: Command) -> tuple[int, RemitError | None, str]:
    """``remit package COMMAND`` in this process: its exit, its error, what it said."""
    said = io.StringIO()
    caught: list[RemitError] = []
    begin = RemitError.__init__

    def noted(self: RemitError, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        caught.append(self)

    RemitError.__init__ = noted  # type: ignore[method-assign]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                main(["package", *command, "--root", str(root)])
                code = 0
            except SystemExit as leave:
                code = int(leave.code or 0)
    finally:
        RemitError.__init__ = begin  # type: ignore[method-assign]
    told = [one for one in caught if f"error: {one.message}" in said.getvalue()]
    return code, told[-1] if told else None, said.getvalue()


def play(case: Case, stage: Stage) -> Told:
    """Try it; tells what was said, and what changed in the root."""
    command = case.make(stage)
    before, count = tree(stage.root), entries(stage.root)
    exit_code, error, said = remit(stage.root, command)
    after = tree(stage.root)
    changed = sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )
    if error is None:
        return Told("", said, "", exit_code, changed, entries(stage.root) - count)
    code = error.code if isinstance(error, PackageError) else type(error).__name__
    return Told(
        code, error.message, error.next_step, exit_code, changed, entries(stage.root) - count
    )


# -- archives that are none ------------------------------------------------------------------

_PATH = "HOT/policy/mine.md"
_MINE = {_PATH: b"text"}


def _manifest(files: dict[str, bytes], **changes: Any) -> bytes:
    return encoded(manifest_of(files, "PKG-MINE-001", **changes))


def _raw(*members: tuple[tarfile.TarInfo, bytes], manifest: bytes | None = None) -> bytes:
    return tar_archive([member("manifest.json", manifest or _manifest(_MINE)), *members])


def _archive(data: bytes | Callable[[], bytes]) -> Make:
    """Install these bytes; where making them takes long, they are made when it is their turn."""
    return lambda stage: [
        "install", stage.write(data if isinstance(data, bytes) else data()), "--dev",
    ]  # fmt: skip


def tiny_files(number: int) -> bytes:
    """An archive of so many empty files, none declared, of distinct names in order."""
    info = tarfile.TarInfo("HO1/data/0000000")
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    header[329:345] = b"0000000\0" * 2
    header[148:156] = b" " * 8
    at = len("HO1/data/")
    base = sum(header) - 7 * ord("0")
    gzip = zlib.compressobj(1, wbits=31)
    manifest = _manifest(_MINE)
    first = tarfile.TarInfo("manifest.json")
    first.size = len(manifest)
    head = bytearray(first.tobuf(tarfile.USTAR_FORMAT))
    head[329:345] = b"0000000\0" * 2
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    found = [gzip.compress(bytes(head) + manifest + bytes(-len(manifest) % 512))]
    block = bytearray()
    for one in range(number):
        digits = b"%07d" % one
        header[at : at + 7] = digits
        header[148:156] = b"%06o\0 " % (base + sum(digits))
        block += header
        if len(block) > 4_000_000:
            found.append(gzip.compress(bytes(block)))
            block.clear()
    found.append(gzip.compress(bytes(block) + bytes(1024)))
    return b"".join([*found, gzip.flush()])


def _bomb() -> bytes:
    data = bytes(16_000_000)
    return tar_archive([member("manifest.json", _manifest({_PATH: data})), member(_PATH, data)])


def _many_declared() -> bytes:
    files = {f"HOT/policy/{number:05}": b"" for number in range(10_001)}
    return tar_archive(
        [member("manifest.json", _manifest(files)), *(member(path) for path in files)]
    )


_LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
_TWINS = {_PATH: b"text", "HOT/policy/MINE.md": b"text"}

ARCHIVES = [
    Case("a path with ..", "parent_path", "'..'",
         _archive(_raw(manifest=_manifest({"HOT/../../x": b""})))),
    Case("a symbolic link", "link", "link", _archive(_raw(member(_PATH, **_LINK)))),
    Case("a device", "device", "device", _archive(_raw(member(_PATH, type=tarfile.CHRTYPE)))),
    Case("a file twice", "duplicate_member", "twice",
         _archive(_raw(member(_PATH, b"text"), member(_PATH, b"text")))),
    Case("two names that differ in case", "twin_paths", "MINE.md",
         _archive(_raw(manifest=_manifest(_TWINS)))),
    Case("a zip bomb", "ratio", "100 times", _archive(_bomb)),
    Case("1,000,000 tiny files", "unpacked_too_large", "268435456",
         _archive(lambda: tiny_files(1_000_000))),
    Case("10,001 files, all declared", "too_many_files", "10000", _archive(_many_declared)),
    Case("a wrong hash", "wrong_hash", "sha256:", _archive(_raw(member(_PATH, b"other")))),
    Case("a hash in bare hex", "bare_hex", "lacks its algorithm",
         _archive(_raw(manifest=_manifest(_MINE).replace(b'"sha256:', b'"')))),
    Case("a missing asset", "missing_asset", _PATH, _archive(_raw())),
    Case("an undeclared file", "undeclared_file", "other.md",
         _archive(_raw(member(_PATH, b"text"), member("HOT/policy/other.md", b"x")))),
    Case("another package than the one asked for", "wrong_id", "PKG-MINE-001",
         lambda stage: ["install", stage.policy(), "--dev", "--id", "PKG-OTHER-001"]),
]  # fmt: skip


# -- packages that do not fit here -----------------------------------------------------------


MINE = "PKG-MINE-001"
REMOVED = ["remove", MINE]


def mine(version: str = "1.0.0", text: bytes = b"text", **changes: Any) -> Archive:
    return lambda stage: stage.policy(version, text, **changes)


def at(path: str, package_id: str = MINE, **changes: Any) -> Archive:
    return lambda stage: stage.pack({path: b"x"}, package_id, **changes)


def other(**changes: Any) -> Archive:
    return at("HOT/policy/o.md", "PKG-OTHER-001", **changes)


def signed(
    archive: Archive, *, key: str = "trusted", trusted: bool = True, days: int | None = None
) -> Archive:
    ends = None if days is None else datetime.now(UTC) + timedelta(days=days)
    return lambda stage: stage.sign(archive(stage), stage.key(key, trusted=trusted), expires=ends)


def install(*archives: Archive, verb: str = "install", flags: Sequence[str] = ("--dev",)) -> Make:
    return lambda stage: [verb, *(archive(stage) for archive in archives), *flags]


def upgrade(archive: Archive, *flags: str) -> Make:
    return install(archive, verb="upgrade", flags=["--dev", *flags])


def after(*before: Archive | Command, then: Make | Command) -> Make:
    """Install archives and run commands, one after the other, and then try ``then``."""

    def make(stage: Stage) -> Command:
        for step in before:
            if isinstance(step, list):
                stage.run(step)
            else:
                stage.bring(step(stage))
        return then if isinstance(then, list) else then(stage)

    return make


def disturbed(disturb: Callable[[Stage], object], then: Make) -> Make:
    """Change the root by hand, and then try ``then``."""
    return lambda stage: (disturb(stage), then(stage))[1]


def needing(package_id: str, version: str = ">=1.0.0") -> dict[str, Any]:
    return {"dependencies": [{"package_id": package_id, "version": version}]}


def _in_the_way(stage: Stage) -> None:
    file = stage.root / _PATH
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"somebody's own")


def _linked_folder(stage: Stage) -> None:
    (stage.scratch / "elsewhere").mkdir()
    (stage.root / "HOT/policy").symlink_to(stage.scratch / "elsewhere")


def _linked_tier(stage: Stage) -> None:
    (stage.root / "HO2").rename(stage.scratch / "HO2")
    (stage.root / "HO2").symlink_to(stage.scratch / "HO2")


def _ledger_moved(stage: Stage) -> None:
    config = stage.root / "remit.toml"
    shutil.move(stage.root / "ledger.db", stage.root / "HO1/ledger.db")
    config.write_text(config.read_text() + '\n[ledger]\npath = "HO1/ledger.db"\n')


def _changed_file(stage: Stage) -> None:
    contract = stage.root / "HO1/contracts/PRC-SYNTHESIZE-001.json"
    contract.write_bytes(contract.read_bytes() + b" ")


def _own_framework(stage: Stage) -> str:
    rules = {
        "framework_id": "FMWK-MINE-001", "version": "1.0.0", "title": "x", "text": "x",
        "expected_specs": [],
        "rules": {"paths": ["HOT/"], "permissions": {"tools": ["*"]}, "gates": []},
    }  # fmt: skip
    files = {"HOT/frameworks/FMWK-MINE-001.json": json.dumps(rules).encode()}
    return stage.pack(files, "PKG-RULES-001", framework_id="FMWK-MINE-001", plane_id="hot")


PLACES = [
    Case("an unknown dependency", "missing_dependency", "PKG-NOWHERE-001",
         install(mine(**needing("PKG-NOWHERE-001")))),
    Case("a circle of dependencies", "dependency_cycle", "circle",
         install(mine(**needing("PKG-OTHER-001")), other(**needing(MINE)))),
    Case("a version out of range", "dependency_version", ">=9.0.0",
         install(mine(**needing("PKG-KERNEL-001", ">=9.0.0")))),
    Case("what is superseded", "superseded", "PKG-OTHER-001",
         after(other(supersedes=[MINE]), then=install(mine())), True),
    Case("superseding what is there", "supersedes_installed", MINE,
         after(mine(), then=install(other(supersedes=[MINE]))), True),
    Case("another package's file", "owned_by_other", "PKG-MINE-001 owns",
         after(mine(), then=install(at(_PATH, "PKG-OTHER-001"))), True),
    Case("the kernel's file, while depending on it", "owned_by_other", "PKG-KERNEL-001 owns",
         install(at("HOT/config/defaults.toml", **needing("PKG-KERNEL-001")))),
    Case("another's file in other case", "owned_by_other", "PKG-MINE-001 owns",
         after(mine(), then=install(at("HOT/policy/Mine.md", "PKG-OTHER-001"))), True),
    Case("a file below another's file", "owned_by_other", "PKG-MINE-001 owns",
         after(at("HOT/policy/folder"), then=install(at("HOT/policy/folder/x", "PKG-OTHER-001"))),
         True),
    Case("a file above another's file", "owned_by_other", "PKG-MINE-001 owns",
         after(at("HOT/policy/folder/x"), then=install(at("HOT/policy/folder", "PKG-OTHER-001"))),
         True),
    Case("its own file in other case", "case_only", "differ only in case",
         after(mine(), then=upgrade(at("HOT/policy/MINE.md", version="2.0.0"), "--approve")), True),
    Case("rules of its own for itself", "own_framework", "its own framework",
         install(_own_framework, flags=("--dev", "--approve"))),
    Case("a file of the kernel's, not approved", "permissions_widened", "kernel's plane",
         install(signed(mine()), flags=()), True),
    Case("a file in the way", "file_in_the_way", "belongs to no package",
         disturbed(_in_the_way, install(mine())), True),
    Case("a link in the place of a folder", "linked_folder", "link",
         disturbed(_linked_folder, install(mine())), True),
    Case("a link in the place of a tier", "linked_folder", "link",
         disturbed(_linked_tier, install(at("HO2/agents/x.json"))), True),
    *(Case(f"a file in {path}", "reserved_path", "reserved for Remit", install(at(path)))
      for path in ("HOT/installed/PKG-X-001/receipt.json", "HOT/keys/x.pem", "HOT/Installed/x")),
    Case("the ledger's place", "reserved_path", "reserved for Remit",
         disturbed(_ledger_moved, install(at("HO1/ledger.db"))), True),
    *(Case(f"a plane violated by {path}", "plane_path", "HO1/, its specification",
           install(at(path, plane_id="ho1")))
      for path in ("HO2/agents/x.json", "HOT/specs/SPEC-KERNEL-001.json")),
    Case("a framework's paths violated", "gate_failed", "FMWK-POLICY-001",
         install(at("HOT/other/x.md"))),
    Case("a framework's ceiling exceeded", "gate_failed", "token_budget",
         install(lambda stage: stage.pack(
             {}, spec_id="SPEC-AGENT-001", framework_id="FMWK-AGENT-001", plane_id="ho2",
             permissions={"budgets": {"token_budget": 10**9}}))),
    Case("an unknown specification", "gate_failed", "SPEC-NOWHERE-001",
         install(mine(spec_id="SPEC-NOWHERE-001"))),
    Case("an unknown framework", "gate_failed", "FMWK-NOWHERE-001",
         install(mine(framework_id="FMWK-NOWHERE-001"))),
    Case("a root with a changed file", "gate_failed", "PRC-SYNTHESIZE-001",
         disturbed(_changed_file, install(mine())), True),
]  # fmt: skip


# -- who may do what -------------------------------------------------------------------------

_MORE = {"permissions": {"tools": ["list_files"], "budgets": {"token_budget": 2000}}}
_SOME = {"permissions": {"tools": ["list_files"], "budgets": {"token_budget": 1000}}}
_NEWER = mine("2.0.0", b"new")


def _envelope(archive: str) -> Path:
    return Path(archive.removesuffix(".tar.gz") + ".intoto.json")


def _bad_signature(stage: Stage) -> str:
    archive, other_version = signed(mine())(stage), signed(mine("1.0.1"))(stage)
    envelope = json.loads(_envelope(archive).read_bytes())
    envelope["signatures"] = json.loads(_envelope(other_version).read_bytes())["signatures"]
    _envelope(archive).write_text(json.dumps(envelope))
    return archive


def _other_subject(stage: Stage) -> str:
    archive = mine()(stage)
    shutil.copy(_envelope(signed(mine("1.0.1"))(stage)), _envelope(archive))
    return archive


def _revoked(stage: Stage) -> None:
    stage.run(["trust", "revoke", stage.key("lost").key_id, "--reason", "it was stolen"])


def _trust_edited(stage: Stage) -> None:
    file, key = stage.root / "trust.json", stage.key("trusted")
    policy = json.loads(file.read_bytes())
    policy["keys"] = [one for one in policy["keys"] if one["key_id"] != key.key_id]
    file.write_text(json.dumps(policy))


def _kept(stage: Stage) -> Path:
    return stage.root / f"HOT/installed/{MINE}/archives/1.0.0.tar.gz"


def _rolled_back_without(change: Callable[[Stage], object]) -> Make:
    """Roll back to an archive with which something was done."""
    return after(mine(), _NEWER, then=disturbed(change, lambda _: ["rollback", MINE]))


RIGHTS = [
    Case("permissions that nobody approved", "permissions_widened", "the tool list_files",
         install(signed(mine(**_SOME)), flags=()), True),
    Case("wider permissions in an upgrade", "permissions_widened", "the tool list_files",
         after(mine(), then=upgrade(mine("2.0.0", **_SOME))), True),
    Case("wider permissions after a removal", "permissions_widened", "the tool list_files",
         after(mine(), REMOVED, then=install(mine("2.0.0", **_SOME))), True),
    Case("a budget raised", "permissions_widened", "2000 instead of 1000",
         after(mine(**_SOME), then=upgrade(mine("2.0.0", **_MORE))), True),
    Case("wider permissions by a rollback", "permissions_widened", "the tool list_files",
         after(mine(**_SOME), mine("2.0.0"), then=["rollback", MINE]), True),
    Case("unsigned", "unsigned", MINE, install(mine(), flags=())),
    Case("the wrong key", "wrong_key", "not trusted",
         install(signed(mine(), key="stranger", trusted=False), flags=()), True),
    Case("the wrong key, with --dev", "wrong_key", "not trusted",
         install(signed(mine(), key="stranger", trusted=False)), True),
    Case("a bad signature", "bad_signature", "does not verify",
         install(_bad_signature, flags=()), True),
    Case("another package's signature", "wrong_subject", "", install(_other_subject, flags=()),
         True),
    Case("an expired signature", "expired", "expired",
         install(signed(mine(), days=-1), flags=()), True),
    Case("a revoked key", "revoked_key", "revoked",
         disturbed(_revoked, install(signed(mine(), key="lost"), flags=())), True),
    Case("trust.json edited by hand", "trust_changed", "trust.json",
         disturbed(_trust_edited, install(signed(mine()), flags=())), True),
    Case("an upgrade backwards", "older_version", "older than 2.0.0",
         after(mine("2.0.0"), then=upgrade(mine())), True),
    Case("an older version after a removal", "older_version", "older than 2.0.0",
         after(mine("2.0.0"), REMOVED, then=install(mine())), True),
    Case("a version reused after a removal", "version_reused", "other content",
         after(mine(), REMOVED, then=install(mine(text=b"other"))), True),
    Case("a version reused with other bytes", "version_reused", "other content",
         after(mine(), then=install(mine(text=b"other"))), True),
    Case("an upgrade away from what others need", "needed", "PKG-OTHER-001",
         after(mine(), other(**needing(MINE, "<2.0.0")), then=upgrade(mine("2.0.0"))), True),
    Case("removing what others need", "needed", "needs PKG-KERNEL-001",
         lambda _: ["remove", "PKG-KERNEL-001"]),
    Case("rolling back where nothing was before", "no_older_version", "never installed",
         lambda _: ["rollback", "PKG-KERNEL-001"]),
    Case("rolling back to an archive that is gone", "archive_lost", "no longer stored",
         _rolled_back_without(lambda stage: _kept(stage).unlink()), True),
    Case("rolling back to an archive that was swapped", "archive_lost", "differs from the archive",
         _rolled_back_without(
             lambda stage: shutil.copy(mine(text=b"planted")(stage), _kept(stage))), True),
]  # fmt: skip

CASES = [*ARCHIVES, *PLACES, *RIGHTS]


# -- what happens around an operation --------------------------------------------------------


def python(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Another Python process, in the directory of the project."""
    project = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, cwd=project, timeout=300, check=False, **more,
    )  # fmt: skip


def busy(stage: Stage) -> subprocess.CompletedProcess[str]:
    """Install while another process holds the lock, and wait only shortly."""
    archive = stage.policy()
    with package_lock(stage.root, 5):
        environment = {**os.environ, "REMIT_PACKAGES__LOCK_TIMEOUT_S": "0.2"}
        command = ["package", "install", archive, "--dev", "--root", str(stage.root)]
        return python("-m", "remit", *command, env=environment)


def can_mount() -> bool:
    """Whether this process may make file systems of its own."""
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except OSError:
        return False


def read_only(stage: Stage) -> subprocess.CompletedProcess[str]:
    """Install where the whole root is on a disk that is mounted read-only."""
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    command = [sys.executable, "-m", "remit", "package", "install", stage.policy(), "--dev",
               "--root", str(stage.root)]  # fmt: skip
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(stage.root), *command],
        capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=120, check=False,
    )  # fmt: skip


def full_disk(stage: Stage, free_kb: int) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Install a large package on a file system with so many KiB left; and the root after it."""
    text = os.urandom(300_000).hex().encode()[:400_000]
    archive = stage.policy(text=text)
    kept = stage.scratch / "kept"
    script = (
        'mkdir -p "$1" && mount -t tmpfs -o size=16m none "$1" && cp -a "$2" "$1/root" && '
        'free=$(df -k --output=avail "$1" | tail -1) && fill=$((free - $4)) && '
        'dd if=/dev/zero of="$1/filler" bs=1k count=$fill 2>/dev/null; '
        '"$5" -m remit package install "$6" --dev --root "$1/root"; said=$?; '
        'cp -a "$1/root" "$3"; exit $said'
    )
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(stage.scratch / "mounted"),
               str(stage.root), str(kept), str(free_kb), sys.executable, archive]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=120,
        check=False,
    )  # fmt: skip
    return done, kept
