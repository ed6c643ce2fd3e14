"""Operations that make a root: from the shipped packages, or from a bootstrap file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

from remit.kernel.errors import InvalidInputError, RemitError
from remit.operations import Caller, Note, RootPort, field, verb
from remit.operations.files import io_errors, settings_at


def _init_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield notes on the new and the moved files, and on the next command."""
    place = found["root"]
    if found["waived"]:
        yield Note("Remit is installed in editable mode, so its own files cannot be checked; this "
                   "is recorded as a waiver.")  # fmt: skip
    yield Note(f"{place} was created." if found["made"]
               else f"{place} already exists; no files are missing.")  # fmt: skip
    if found["aside"]:
        yield Note(f"Files of an earlier version were moved to {found['aside']}.")
    for path in found["changed"]:
        yield Note(f"{path} was changed after installation. `remit package restore` replaces it; "
                   "keep a copy.")  # fmt: skip
    if found["made"] and not found["bare"]:
        yield Note("next: `remit setup` configures a provider, creates a key with a budget, and "
                   "makes a first call; `remit chat` starts a conversation with the ADMIN agent; "
                   "`remit doctor` checks the installation.")  # fmt: skip


@verb("init", changes=True, media_type="text/plain", lines=_init_lines)
def init_root(
    root: RootPort, caller: Caller, *,
    directory: Path | None = field("Directory of the root.", None, flag="", metavar="[DIRECTORY]",
                                   place="folder"),
    bare: bool = field("Create only keys and an empty ledger, for `remit ledger import`.", False),
    new_ledger: bool = field(
        "Start a new ledger if the old one is lost, and trust the root's own key again.", False
    ),
    example: Literal["batch_csv", "research_agent", "support_agent"] | None = field(
        "Also write this example to a new directory of its name.", None
    ),
) -> dict[str, Any]:  # fmt: skip
    """Create a root, or restore the missing files of a root.

    Shipped packages of an earlier version are upgraded in one recorded operation. DIRECTORY is
    ./.remit by default.

    Returns:
        ``root``, its directory; ``made``, the number of new files; ``bare``; ``waived``, True if
        the hashes of a new root's code are not checked; ``aside``, the folder of moved files or
        None; and ``changed``, the paths of installed files that differ afterwards.

    Raises:
        InvalidInputError: the root would be bare and have a new ledger, or the directory of the
            example exists.
        RemitError: the root cannot be made.
    """
    from remit.kernel.installed_files import InstalledFiles
    from remit.kernel.root import Root, find_root
    from remit.packages.shipped import ASIDE_FOLDER, copy_files
    from remit.runtime.installation import make_root

    if bare and new_ledger:
        raise InvalidInputError("--bare and --new-ledger exclude each other.")
    if example is not None:
        copy_files(f"examples/{example}", Path(example))
        root.note(f"The example was written to {example}; the docstring at the top of "
                  f"{example}/{example}.py describes it.")  # fmt: skip
    given = directory or root.path
    place = Root(given) if given is not None else find_root()
    before = _files(place.path)
    editable = make_root(place, bare=bare, new_ledger=new_ledger, by=caller.name, step=root.step)
    aside = place.path / ASIDE_FOLDER
    is_new = aside.is_dir() and not any(file.is_relative_to(aside) for file in before)
    return {
        "root": place.path, "made": len(_files(place.path) - before), "bare": bare,
        "waived": editable and not before, "aside": aside if is_new else None,
        "changed": InstalledFiles(place.path).changed(),
    }  # fmt: skip


def _files(root: Path) -> set[Path]:
    return {file for file in root.rglob("*") if file.is_file()}


@verb("bootstrap build", prints="{sha256}", then="{out}: Remit {remit_version}, {bytes} bytes.")
def build_bootstrap(
    root: RootPort, caller: Caller, *, target: Path = field("Output file.", flag="--out")
) -> dict[str, Any]:
    """Write CP_BOOTSTRAP.tar.gz: this Remit and its packages. The build is reproducible.

    An existing file is replaced.

    Returns:
        ``out``, ``sha256`` (with its prefix), ``bytes``, ``remit_version``, ``wheel`` (its file
        name), and ``packages``: each with ``package_id`` and ``version``.

    Raises:
        RemitError: the file cannot be written, or the installed files of Remit were changed.
    """
    from remit.kernel.canonical import sha256_hex
    from remit.packages import build_bundle, replace_file
    from remit.packages.distribution import repack_wheel
    from remit.packages.shipped import shipped_archives

    wheel = repack_wheel()
    data, manifest = build_bundle(wheel, shipped_archives(), settings_at(root.path).packages)
    step = "Choose a file in a writable directory."
    with io_errors(target, "written", partial(RemitError, next_step=step)):
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, data)
    return {
        "out": str(target), "sha256": f"sha256:{sha256_hex(data)}", "bytes": len(data),
        "remit_version": manifest["remit_version"], "wheel": wheel[0],
        "packages": [{"package_id": one["package_id"], "version": one["version"]}
                     for one in manifest["packages"]],
    }  # fmt: skip


@verb(
    "bootstrap install", changes=True, has_failed=lambda found: not found["passed"],
)  # fmt: skip
def install_bootstrap(
    root: RootPort, caller: Caller, *,
    directory: Path = field("The directory packages/ of the unpacked bootstrap.",
                            flag="--packages", metavar="DIR", place="folder"),
    dev: bool = field("Accept unsigned packages; the waiver is recorded.", False),
) -> dict[str, Any]:  # fmt: skip
    """Install all packages of a bootstrap and run every gate. Exit 1 if a gate fails.

    Returns:
        ``passed``, True if packages were installed and all gates passed; ``receipts``, with
        ``package_id``, ``version`` and the path ``receipt``; and ``gates``, with ``gate``,
        ``passed``, ``message`` and ``errors``.

    Raises:
        InvalidInputError: no root is named, neither by --root nor by REMIT_ROOT. The nearest root
            is not meant.
        PackageError: a package is refused.
        RemitError: the root cannot be made.
    """
    from remit.kernel.root import Root
    from remit.packages import read_bundle, receipt_path
    from remit.runtime import installation

    place = root.path or Path(os.environ.get("REMIT_ROOT", ""))
    if place == Path():
        raise InvalidInputError(
            "No root was given to install into.",
            next_step="Run `remit bootstrap install --root DIR …`, or set REMIT_ROOT.",
        )
    archives = read_bundle(directory, settings_at(root.path).packages)
    installed, report = installation.install_bootstrap(
        Root(place), archives, dev=dev, by=caller.name
    )
    receipts = [
        {"package_id": one.package_id, "version": one.version,
         "receipt": receipt_path(one.package_id)}
        for one in installed
    ]  # fmt: skip
    gates = [{name: gate.to_dict()[name] for name in ("gate", "passed", "message", "errors")}
             for gate in report.gates]  # fmt: skip
    return {"passed": bool(installed) and report.passed, "receipts": receipts, "gates": gates}
