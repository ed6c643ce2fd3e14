"""The change that a proposal makes, and the files of its package."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from remit.contracts import ContractLoader, PromptContract
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.settings import LEARNED_FOLDER, not_learnable

_HEAD = "Learned from earlier work:"
_BULLET = re.compile(r"^- \[([0-9a-f]{8})\] (.+)$")
_BLOCK = re.compile(rf"\n*^{_HEAD}\n(?:- \[[0-9a-f]{{8}}\] .+\n?)+", re.MULTILINE)
_SYSTEM = re.compile(r"^\[system\][ \t\r]*$", re.MULTILINE)
_SECTION = re.compile(r"^\[(?:system|user|assistant|history)\][ \t\r]*$", re.MULTILINE)
_TEMPLATE = re.compile(r"\{[{%#]|[%#}]\}")
_LONGEST = 500  # characters of one bullet


def additions_of(pack: str) -> dict[str, str]:
    """Return the learned bullets of a prompt pack's text in order, keyed by id (8 hex digits)."""
    found = _BLOCK.search(pack)
    lines = found[0].splitlines() if found else ()
    return {bullet[1]: bullet[2] for line in lines if (bullet := _BULLET.match(line))}


def with_additions(pack: str, added: Iterable[str], dropped: Sequence[str] = ()) -> str:
    """Return a prompt pack with further bullets at the end of its first system section.

    The id of a bullet is the first 8 hex digits of the SHA-256 of its text, so a text is never
    added twice. Earlier bullets stay unless dropped. A pack without a system section gets one.

    Args:
        added: texts to add, one line each.
        dropped: ids of bullets to remove.

    Raises:
        InvalidInputError: a text is not one line of plain text of at most 500 characters, or an id
            is unknown.
    """
    bullets = additions_of(pack)
    for bullet_id in dropped:
        if bullet_id not in bullets:
            raise InvalidInputError(f"The prompt has no addition {bullet_id}.")
        del bullets[bullet_id]
    for given in added:
        text = given.strip()
        if not text.isprintable() or not 0 < len(text) <= _LONGEST or _TEMPLATE.search(text):
            raise InvalidInputError(
                f"An addition must be one line of plain text of at most {_LONGEST} characters, "
                "without template syntax.",
            )
        bullets.setdefault(sha256_hex(text.encode())[:8], text)
    bare = _BLOCK.sub("\n", pack, count=1)
    if not bullets:
        return bare
    lines = (f"- [{bullet_id}] {text}" for bullet_id, text in bullets.items())
    block = "\n".join([_HEAD, *lines])
    system = _SYSTEM.search(bare)
    if system is None:
        first = "" if _SECTION.match(bare) else "[user]\n"
        return f"[system]\n{block}\n{first}{bare}"
    after = _SECTION.search(bare, system.end())
    end = after.start() if after else len(bare)
    return f"{bare[:end].rstrip()}\n\n{block}\n{bare[end:]}"


Kind = Literal["route", "head", "prompt", "boundary", "budget", "tool_permission", "set_aside"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_SETTINGS = {
    "route": ("routing", "routing"), "head": ("routing", "routing"),
    "set_aside": ("routing", "routing"), "budget": ("limits", "budget"),
    "tool_permission": ("limits", "chat"),
}  # fmt: skip
"""The target and the section of the settings of each kind."""

_PACKAGE = "Put it into a package with `remit package new`."
_STEP = 10_000  # The author of a contract leaves so many patch versions for learned ones.
_DIFF_LINES = 400
_DIFF_BYTES = 65_536  # Larger files are not compared line by line.


@dataclass(frozen=True, slots=True)
class Change:
    """A change, in the form of its kind.

    ``route``, ``head``, ``set_aside``, ``budget`` and ``tool_permission`` have ``settings``, nested
    tables in the form of ``remit.toml``, and may have ``files`` that these name. They are merged
    into earlier learned settings, and ``None`` removes a setting. ``prompt`` and ``boundary`` make
    a new version of a contract.

    Attributes:
        kind: one of :data:`KINDS`.
        contract_id: the contract of ``prompt`` and ``boundary``; empty for other kinds.
        settings: such as ``{"routing": {"models": {"gpt-4o": {"abilities": {"code": 80}}}}}``,
            ``{"routing": {"set_aside": ["gpt-4o"]}}``, ``{"budget": {"session_tokens": 1000}}`` or
            ``{"chat": {"tools_allowed": ["read_file"]}}``;
            :data:`remit.kernel.settings.learned_layer.LEARNABLE` lists the settings that can be
            learned.
        files: files by path, below ``HOT/learned/routing/`` or, for rules, ``HOT/routing/``. Rules
            are named by ``{"routing": {"rules": "HOT/routing/learned.json"}}``.
        prompt: the whole prompt pack; empty to keep the present one.
        additions: for ``prompt``: texts that become bullets of the system section, each with an id.
        dropped: ids of removed bullets.
        boundary: fields of the contract's boundary (``max_tokens``, ``temperature``,
            ``provider_id``, ``model_id``); ``None`` removes a field.
    """

    kind: Kind
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    contract_id: str = ""
    prompt: str = ""
    additions: Sequence[str] = ()
    dropped: Sequence[str] = ()
    boundary: Mapping[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The subject of the change: ``routing``, ``limits``, or a contract's id."""
        known = _SETTINGS.get(self.kind)
        return known[0] if known else self.contract_id

    @property
    def package_id(self) -> str:
        """Id of the package with all learned changes of the target: ``PKG-LEARNED-…``."""
        name = self.target.upper()
        return f"PKG-LEARNED-{name}" if "-" in name else f"PKG-LEARNED-{name}-001"

    def check(self) -> None:
        """Check that the fields fit the kind; return nothing. No file is read.

        A ``prompt`` or ``boundary`` needs ``contract_id`` and its own fields, every other kind
        ``settings`` or ``files``. Whether the contract exists is not checked.

        Raises:
            InvalidInputError: the kind is unknown, a field is missing or belongs to another kind, a
                setting cannot be learned, or a file has a path that the kind does not allow.
        """
        if self.kind not in KINDS:
            raise InvalidInputError(
                f"Unknown kind of proposal {self.kind!r}.",
                next_step=f"Use one of {', '.join(KINDS)}.",
            )
        given = {
            "prompt": self.prompt or self.additions or self.dropped, "boundary": self.boundary,
            "contract": self.contract_id, "settings": self.settings or self.files,
        }  # fmt: skip
        of_contract = self.kind in ("prompt", "boundary")
        fits = {self.kind, "contract"} if of_contract else {"settings"}
        if {name for name, value in given.items() if value} != fits:
            raise InvalidInputError(
                f"A proposal of the kind {self.kind} cannot contain these fields.",
                next_step="A prompt or boundary proposal gives a contract and its changes; all "
                "other kinds give settings.",
            )
        if of_contract:
            return
        place, section = _SETTINGS[self.kind]
        wrong = not_learnable(self.settings) or next(iter(self.settings.keys() - {section}), "")
        if wrong:
            raise InvalidInputError(
                f"A proposal of the kind {self.kind} cannot change {wrong}.",
                next_step="docs/learning.md lists what may be learned.",
            )
        own = f"{LEARNED_FOLDER}{place}/"
        for path in self.files:
            if path == _settings_path(place) or not (
                path.startswith(own) or (place == "routing" and path.startswith("HOT/routing/"))
            ):
                raise InvalidInputError(
                    f"A proposal of the kind {self.kind} cannot contain {path}."
                )

    def made(
        self, installed: InstalledFiles, contracts: ContractLoader, number: int
    ) -> dict[str, bytes]:
        """Return the files of a version of the package that makes this change, keyed by path.

        The files contain everything learned about the target. For settings they are those of the
        installed version, with the change; for a contract its new version and, if it was changed
        now or before, its prompt pack. Nothing is written.

        Args:
            number: number of the version; the last part of a learned contract's version.

        Raises:
            InvalidInputError: the change changes nothing, its contract or pack belongs to no
                package, or an addition or a dropped id is refused by :func:`with_additions`.
            ContractError: the contract is missing or not valid.
            ChangedFileError: an installed file differs from its package.
        """
        owner = self.package_id
        paths = (path for folder in ("HOT/", "HO1/") for path in installed.paths(folder))
        before = {path: installed.read(path) for path in paths if installed.owner(path) == owner}
        if self.contract_id:
            made = self._contract_files(installed, contracts, number)
        else:
            path = _settings_path(self.target)
            state = json.loads(before.get(path, b"{}"))
            _merge(state, self.settings)
            made = {**before, **self.files, path: canonical_json(state) + b"\n"}
        if made == before:
            raise InvalidInputError("The proposal changes nothing.")
        return made

    def _contract_files(
        self, installed: InstalledFiles, contracts: ContractLoader, number: int
    ) -> dict[str, bytes]:
        newest = contracts.load(self.contract_id)
        path = _path_of(installed, newest)
        value = json.loads(installed.read(path))
        pack_path, pack = pack_of(installed, newest.prompt_pack_id)
        versions = (
            PromptContract.parse(installed.read(one), one)
            for one in installed.paths(f"HO1/contracts/{self.contract_id}")
            if not installed.owner(one).startswith("PKG-LEARNED-")
        )
        base = max(versions, key=lambda one: one.precedence).version
        # Above every patch of the base, and below its next minor version.
        major, minor, patch = base.partition("+")[0].partition("-")[0].split(".")
        value["version"] = f"{major}.{minor}.{_STEP * (int(patch) + 1) + number}"
        limits = {**value["boundary"], **self.boundary}
        value["boundary"] = {key: item for key, item in limits.items() if item is not None}
        text = with_additions(self.prompt or pack, self.additions, self.dropped)
        files: dict[str, bytes] = {}
        if text != pack or installed.owner(pack_path) == self.package_id:
            letters, digits = self.contract_id.removeprefix("PRC-").rsplit("-", 1)
            value["prompt_pack_id"] = f"PRM-LEARNED{letters}-{digits}"
            files[f"HO1/prompt_packs/{value['prompt_pack_id']}.txt"] = text.encode()
        if text == pack and limits == json.loads(installed.read(path))["boundary"]:
            raise InvalidInputError("The proposal changes nothing.")
        name = f"HO1/contracts/{self.contract_id}@{value['version']}.json"
        return {name: json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n", **files}

    def compared(
        self, installed: InstalledFiles, contracts: ContractLoader, made: Mapping[str, bytes]
    ) -> str:
        """Return a unified diff of files with those in force: 400 lines, and a note of more.

        JSON is compared in indented form. Of a file above 64 KiB, and of evidence, only the sizes
        are named. The diff is empty if nothing differs. Installed files that ``made`` lacks are not
        compared.

        Args:
            made: the files, as :meth:`made` returns them.

        Raises:
            InvalidInputError: the contract or its pack belongs to no package.
            ContractError: the contract is missing or not valid.
            ChangedFileError: an installed file differs from its package.
        """
        lines: list[str] = []
        for path, data in sorted(made.items()):
            old = self._in_force(installed, contracts, path)
            if old != data:
                lines += _diff(path, old, data)
        more = len(lines) - _DIFF_LINES
        return "\n".join(lines[:_DIFF_LINES] + ([f"({more} more lines)"] if more > 0 else []))

    def _in_force(self, installed: InstalledFiles, contracts: ContractLoader, path: str) -> bytes:
        if self.contract_id:
            newest = contracts.load(self.contract_id)
            if path.startswith("HO1/contracts/"):
                return installed.read(_path_of(installed, newest))
            return pack_of(installed, newest.prompt_pack_id)[1].encode()
        return installed.read(path) if installed.owner(path) else b""


def _settings_path(place: str) -> str:
    return f"{LEARNED_FOLDER}{place}/settings.json"


def _merge(into: dict[str, Any], change: Mapping[str, Any]) -> None:
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def _path_of(installed: InstalledFiles, contract: PromptContract) -> str:
    """Return the path of a contract's version; raise InvalidInputError if no package has it."""
    for path in installed.paths(f"HO1/contracts/{contract.contract_id}"):
        if json.loads(installed.read(path)).get("version") == contract.version:
            return path
    raise InvalidInputError(
        f"{contract.contract_id} {contract.version} does not belong to a package, so Remit "
        "cannot learn about it.",
        next_step=_PACKAGE,
    )


def pack_of(installed: InstalledFiles, pack_id: str) -> tuple[str, str]:
    """Return path and text of a prompt pack; raise InvalidInputError if no package has it.

    Raises ChangedFileError if the file differs from the installed one.
    """
    for path in installed.paths(f"HO1/prompt_packs/{pack_id}."):
        return path, installed.read(path).decode()
    raise InvalidInputError(
        f"The prompt pack {pack_id} does not belong to a package.", next_step=_PACKAGE
    )


def _diff(path: str, old: bytes, new: bytes) -> Iterator[str]:
    # The diff of evidence would hold what an erasure takes out of the evidence.
    if max(len(old), len(new)) > _DIFF_BYTES or path.endswith(".evidence.json"):
        yield f"{path}: {len(old)} bytes become {len(new)}"
        return
    before, after = (_lines(path, data) for data in (old, new))
    yield from difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="")


def _lines(path: str, data: bytes) -> list[str]:
    text = data.decode(errors="replace")
    if path.endswith(".json") and text:
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False, sort_keys=True)
    return text.splitlines()
