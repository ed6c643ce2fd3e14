"""Creation of packages: a first one that works, and its hashes after each change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from remit.kernel.installed_files import digest_of
from remit.packages.archive import paths_in, plain_file
from remit.packages.errors import PackageError
from remit.packages.journal import replace_file
from remit.packages.manifest import PLACES, Manifest, read_manifest
from remit.packages.paths import MANIFEST_NAME, path_problem

_DEFAULT_CLASSIFICATION = "document"
_INTERRUPTED_WRITE = f".{MANIFEST_NAME}.new"


def update_hashes(directory: Path) -> Manifest:
    """Rewrite ``assets`` in a package's ``manifest.json`` to list the files in the directory.

    Known files keep their classification; new files get one by their folder. Other keys keep their
    value. The file is written as indented JSON, replaced as a whole, and only if it changes. Files
    are listed in the order of their paths; the manifest and a leftover of an interrupted write are
    left out.

    Args:
        directory: the folder of the package, with ``manifest.json`` at its top.

    Returns:
        The new manifest.

    Raises:
        PackageError: an error of :meth:`Manifest.parse`: ``manifest.json`` is not JSON, or would
            not be a valid manifest; ``link``, ``not_a_file`` or a code of
            :func:`~remit.packages.path_problem`: a file cannot be part of a package;
            ``unreadable``: a file cannot be read or written, or ``manifest.json`` is missing. The
            manifest stays unchanged.
    """
    file = directory / MANIFEST_NAME
    try:
        before = plain_file(file, MANIFEST_NAME)
        value = read_manifest(before, str(file), check=False)
        if isinstance(value, dict):
            stated = value.get("assets")
            known = {
                str(asset.get("path")): asset.get("classification")
                for asset in (stated if isinstance(stated, list) else ())
                if isinstance(asset, dict)
            }
            value["assets"] = list(_assets(directory, known))
        after = _json(value)
        manifest = Manifest.parse(after, str(file))
        if after != before:
            replace_file(file, after)
    except OSError as error:
        raise _failed(error, directory) from error
    return manifest


def new_package(directory: Path, package_id: str, *, title: str = "") -> Manifest:
    """Write a package with a working agent: its document, contract, prompt pack and manifest.

    ``PKG-TEA-GUIDE-001`` becomes the agent ``tea-guide`` under ``PRC-TEAGUIDE-001``; another number
    than 001 is added to the agent's id. The contract's examples are its acceptance cases. Missing
    folders are created. Nothing is installed. After an error, files that were written stay.

    Args:
        directory: a new or empty directory.
        package_id: an id such as ``PKG-NAME-001``.
        title: one line for people; derived from the id if empty.

    Returns:
        The package's manifest, with the hashes of the written files.

    Raises:
        PackageError: the id or the title is invalid (an error of :meth:`Manifest.parse`; nothing
            was written); ``not_empty``: the directory contains something; ``unreadable``: the
            directory cannot be read or written.
    """
    value = json.loads(_template("manifest.json"))
    words = package_id.split("-")[1:-1]
    title = title or f"The agent {' '.join(words).lower()}"
    value |= {"package_id": package_id, "title": title}
    Manifest.parse(_json(value), "the new manifest")
    number = package_id[-3:]
    # Ids of contracts may contain letters only.
    letters = re.sub("[^A-Z]", "", "".join(words)) or "AGENT"
    contract_id, pack_id = f"PRC-{letters}-{number}", f"PRM-{letters}-{number}"
    agent_id = "-".join([*words, *([number] if number != "001" else [])]).lower()
    agent = {"agent_id": agent_id, "title": title, "contract_id": contract_id}
    contract = {
        "contract_id": contract_id,
        "prompt_pack_id": pack_id,
        "metadata": {"package_id": package_id},
    }
    files = {
        f"HO2/agents/{agent_id}.json": _json(json.loads(_template("agent.json")) | agent),
        f"HO1/contracts/{contract_id}.json": _json(
            json.loads(_template("contract.json")) | contract
        ),
        f"HO1/prompt_packs/{pack_id}.txt": _template("prompt_pack.txt"),
        MANIFEST_NAME: _json(value),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if next(directory.iterdir(), None) is not None:
            raise PackageError(
                "not_empty",
                f"{directory} is not empty.",
                next_step="Choose a new or empty directory.",
            )
        for path, data in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            with (directory / path).open("xb") as stream:
                stream.write(data)
    except OSError as error:
        raise _failed(error, directory) from error
    return update_hashes(directory)


def _assets(directory: Path, known: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path in sorted(paths_in(directory), key=lambda path: path.encode(errors="replace")):
        if path in (MANIFEST_NAME, _INTERRUPTED_WRITE):
            continue
        code, problem = path_problem(path)
        if code:
            raise PackageError(
                code,
                f"The path {path!a} in {directory} {problem}.",
                next_step="A package contains only files of a root: move or rename the file, or "
                "keep it outside the directory.",
            )
        by_place = next(
            (PLACES[place] for place in PLACES if path.startswith(place)), _DEFAULT_CLASSIFICATION
        )
        yield {
            "path": path,
            "sha256": digest_of(plain_file(directory / path, path)),
            "classification": known.get(path) or by_place,
        }


def _template(name: str) -> bytes:
    return resources.files("remit").joinpath("assets/scaffold/agent", name).read_bytes()


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _failed(error: OSError, directory: Path) -> PackageError:
    return PackageError(
        "unreadable",
        f"{error.filename or directory} cannot be read or written: {error.strerror or error}.",
        next_step="A package is a directory with a manifest.json that you can read and write.",
    )
