"""Small installations: packages out of a few files, a registry of them, and their files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.packages import InstalledPackage, Manifest, Registry
from remit.packages.checks import PackageView, RootDisk
from tests.support.packages import manifest_of

PACK = "[system]\n{{ instructions }}\n[user]\n{{ user_input }}\n"
CONTRACT: Mapping[str, Any] = {
    "contract_id": "PRC-GREET-001",
    "version": "1.0.0",
    "prompt_pack_id": "PRM-GREET-001",
    "boundary": {"max_tokens": 100, "temperature": 0},
    "output_schema": {"type": "object", "required": ["greeting"]},
    "examples": [
        {
            "input": {"user_input": "hello", "instructions": "Greet."},
            "renders": ["hello"],
            "output": {"greeting": "hi"},
        }
    ],
}
SPEC: Mapping[str, Any] = {
    "spec_id": "SPEC-GREET-001",
    "framework_id": "FMWK-GREET-001",
    "version": "1.0.0",
    "title": "Greeting",
    "text": "Greets.",
    "contracts": ["PRC-GREET-001"],
    "tools": ["list_files"],
    "schemas": ["HOT/schemas/greeting.schema.json"],
    "agents": ["greeter"],
}
FRAMEWORK: Mapping[str, Any] = {
    "framework_id": "FMWK-GREET-001",
    "version": "1.0.0",
    "title": "Greeters",
    "text": "What greeters may do.",
    "expected_specs": ["SPEC-GREET-001"],
    "rules": {
        "paths": ["HOT/", "HO2/agents/", "HO1/"],
        "permissions": {
            "tools": ["list_*"],
            "models": ["local/*"],
            "budgets": {"token_budget": 1000, "usd_budget": "1.00"},
            "paths": ["HO1/"],
        },
        "gates": ["G1"],
    },
    "config": {"server.metrics_open": {"const": False}},
}
AGENT: Mapping[str, Any] = {
    "agent_id": "greeter",
    "title": "Greets",
    "contract_id": "PRC-GREET-001",
    "tools": ["list_files"],
    "model": "local/tiny",
    "token_budget": 500,
}
SCHEMA: Mapping[str, Any] = {"type": "object", "required": ["greeting"]}
CASES: Mapping[str, Any] = {
    "cases": [
        {
            "name": "greets",
            "kind": "contract",
            "contract_id": "PRC-GREET-001",
            "input": {"user_input": "good day", "instructions": "Greet."},
            "renders": ["good day"],
            "output": {"bye": 1},
            "output_valid": False,
        },
        {
            "name": "a greeting",
            "kind": "schema",
            "schema": "HOT/schemas/greeting.schema.json",
            "value": {"greeting": "hi"},
            "valid": True,
        },
        {
            "name": "no greeting",
            "kind": "schema",
            "schema": "HOT/schemas/greeting.schema.json",
            "value": {},
            "valid": False,
        },
        {
            "name": "a call",
            "kind": "price",
            "model": "openai/gpt-4o-mini",
            "input_tokens": 1000000,
            "output_tokens": 1000000,
            "usd": "0.75",
        },
    ]
}
PERMISSIONS: Mapping[str, Any] = {
    "tools": ["list_files"],
    "models": ["local/*"],
    "budgets": {"token_budget": 1000, "usd_budget": "0.50"},
    "paths": ["HO1/"],
}


def encoded(value: Any) -> bytes:
    """A file's bytes."""
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def greeting_files() -> dict[str, Any]:
    """The files of a small package, by path."""
    return {
        "HOT/specs/SPEC-GREET-001.json": dict(SPEC),
        "HOT/frameworks/FMWK-GREET-001.json": dict(FRAMEWORK),
        "HOT/schemas/greeting.schema.json": dict(SCHEMA),
        "HOT/acceptance/PKG-GREET-001.json": dict(CASES),
        "HO2/agents/greeter.json": dict(AGENT),
        "HO1/contracts/PRC-GREET-001.json": dict(CONTRACT),
        "HO1/prompt_packs/PRM-GREET-001.txt": PACK,
    }


def package(package_id: str, files: Mapping[str, Any], **changes: Any) -> InstalledPackage:
    """An installed package that owns ``files``."""
    values = {
        "spec_id": "SPEC-GREET-001",
        "framework_id": "FMWK-GREET-001",
        "plane_id": "hot",
        "permissions": PERMISSIONS,
        **changes,
    }
    data = {path: encoded(value) for path, value in files.items()}
    manifest = Manifest.parse(encoded(manifest_of(data, package_id, **values)))
    signature = {"waived": True, "keyids": [], "threshold": 1, "envelope_sha256": ""}
    return InstalledPackage(manifest, f"sha256:{'0' * 64}", "archive", signature, "LED-00000000")


@dataclass
class Small:
    """A small installation that a test changes before it looks.

    Attributes:
        files: of the one complete package, by path; texts, or values that become JSON.
        manifest: fields of its manifest that differ.
        more: further packages: their files and manifests by id.
        altered: files on disk that are not what was installed; ``None`` for one that is gone.
        tools: ids of all tools.
    """

    directory: Path
    files: dict[str, Any] = field(default_factory=greeting_files)
    manifest: dict[str, Any] = field(default_factory=dict)
    more: dict[str, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    altered: dict[str, Any] = field(default_factory=dict)
    tools: set[str] = field(default_factory=lambda: {"list_files"})

    @property
    def registry(self) -> Registry:
        """What is installed."""
        packages = {"PKG-GREET-001": package("PKG-GREET-001", self.files, **self.manifest)}
        for package_id, (files, manifest) in self.more.items():
            packages[package_id] = package(package_id, files, **manifest)
        return Registry(packages)

    @property
    def disk(self) -> RootDisk:
        """The files, written."""
        there = dict(self.files)
        for files, _ in self.more.values():
            there.update(files)
        for path, value in {**there, **self.altered}.items():
            file = self.directory / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
            if value is not None:
                file.write_bytes(encoded(value))
        return RootDisk(self.directory)

    @property
    def view(self) -> PackageView:
        """Both, for the checks."""
        return PackageView(self.registry, self.disk, self.tools, ["auto"])

    def change(self, path: str, **changes: Any) -> None:
        """Install a JSON file with other values; ``None`` takes a key out."""
        value = {**self.files[path], **changes}
        self.files[path] = {key: item for key, item in value.items() if item is not None}
