"""``remit init``, ``doctor`` and ``config``: making a root, and looking it over."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from remit.cli.shared import (
    FOLDER,
    common,
    emit,
    is_great,
    note,
    open_ledger,
    open_settings,
    progress,
    reads,
    show_step,
    whoami,
)
from remit.kernel.errors import RemitError

_CLOCKS_APART_S = 60.0


@click.command()
@click.argument("directory", required=False, type=FOLDER)
@click.option(
    "--bare", is_flag=True, help="Keys and an empty ledger only: `remit ledger import` comes next."
)
@click.option(
    "--new-ledger",
    is_flag=True,
    help="Begin a new record where the old one is lost, and trust the root's own key again.",
)
@common
def init(directory: Path | None, root: Path | None, bare: bool, new_ledger: bool) -> None:
    """Make a root in DIRECTORY (default: ./.remit), or put back what is missing of one."""
    from remit.kernel.installed import InstalledFiles
    from remit.kernel.root import Root, find_root
    from remit.packages.shipped import ASIDE_FOLDER
    from remit.runtime import make_root

    if bare and new_ledger:
        raise click.UsageError("--bare and --new-ledger exclude each other.")
    given = directory or root
    place = Root(given) if given is not None else find_root()
    before = _files(place.path)
    editable = make_root(place, bare=bare, new_ledger=new_ledger, by=whoami(), step=show_step)
    made = len(_files(place.path) - before)
    if editable and not before:
        note("Remit runs from an editable install: no hashes to check. Waived, on record.")
    note(f"{place.path}: {made} files made." if made else f"{place.path} is complete.")
    aside = place.path / ASIDE_FOLDER
    if aside.is_dir() and not any(file.is_relative_to(aside) for file in before):
        note(f"Files of an earlier version were in the way; they lie in {aside} now.")
    for path in InstalledFiles(place.path).changed():
        note(f"{path} is not as it was installed; `remit package restore` puts it back.")


def _files(root: Path) -> set[Path]:
    return {file for file in root.rglob("*") if file.is_file()}


@click.command()
@click.option("--full", is_flag=True, help="Check the whole ledger, however great it is.")
@reads
def doctor(root: Path | None, as_json: bool, full: bool) -> None:
    """Check that everything a conversation needs is there; exit 1 when something is not.

    In a great ledger ([gates] full_entries) it goes on from the last verification.
    """
    from remit.kernel.installed import InstalledFiles
    from remit.ledger import entry_id
    from remit.routing import RULES_UNAVAILABLE
    from remit.runtime import require_reachable, resolve_model
    from remit.runtime.routing import rules_of

    checks: list[dict[str, object]] = []

    def check(name: str, passed: bool, message: str) -> None:
        checks.append({"check": name, "passed": passed, "message": message})

    check("python", True, platform.python_version())
    check("sqlite", sqlite3.sqlite_version_info >= (3, 38), sqlite3.sqlite_version)
    try:
        place, loaded = open_settings(root)
        settings = loaded.settings
        bar = progress("verifying")
        check("root", True, str(place.path))
        changed = InstalledFiles(place.path).changed()
        how = f"{len(changed)} files are not as installed, such as {changed[0]}" if changed else ""
        check("packages", not changed, how or "every file is as it was installed")
        free = shutil.disk_usage(place.path).free
        check("disk", free > 1 << 28, f"{free // (1 << 20):,} MiB free")
        with open_ledger(root) as client:
            report = client.verify(
                jobs=os.cpu_count() or 1,
                since_mark=not full and is_great(client, root),
                progress=bar,
            )
            lost = client.checkpoints.problem()
            back = client.steps_back()
            apart_s = abs(client.wall_ms / 1000 - time.time())
        how = f"{report.entries} entries, {report.problem_count} problems"
        if report.last_full:
            how += f"; {report.unread} not read again, all checked on {report.last_full} (--full)"
        check("ledger", report.verified, f"{how}. {lost}" if lost else how)
        how = "no step back among the latest entries"
        if back:
            how = f"it went back {len(back)} times lately, last at {entry_id(back[-1])}: order is "
            how += "that of the entries' numbers"
        if apart_s > _CLOCKS_APART_S:
            how = f"this machine's and the database's differ by {apart_s:.0f} s"
        check("clock", apart_s <= _CLOCKS_APART_S, how)
        rules = rules_of(place, settings.routing)
        there = rules.version_hash != RULES_UNAVAILABLE
        how = "cannot be read; `remit init` puts the shipped ones back where they are missing"
        check("routing rules", there, rules.version_hash if there else how)
        providers, provider_id, model_id = resolve_model(settings)
        check("model", True, f"{provider_id}/{model_id}")
        require_reachable(settings, providers, provider_id, model_id)
        if provider_id == "local":
            there = importlib.util.find_spec("xllamacpp") is not None
            how = "installed" if there else "missing: pip install 'remit[local]'"
            check("local model runtime", there, how)
    except RemitError as error:
        check("failure", False, str(error))
    passed = all(item["passed"] for item in checks)
    lines = (
        f"{'ok  ' if item['passed'] else 'FAIL'}  {item['check']}: {item['message']}"
        for item in checks
    )
    emit(as_json, {"passed": passed, "checks": checks}, lines)
    raise SystemExit(0 if passed else 1)


@click.group()
def config() -> None:
    """Look at the settings."""


@config.command()
@click.option("--meaning", is_flag=True, help="Say what each setting means.")
@reads
def show(root: Path | None, as_json: bool, meaning: bool) -> None:
    """Every setting, its value, and where that came from."""
    from remit.kernel.settings import describe

    _, loaded = open_settings(root)
    meanings = describe()
    rows = [
        {"key": key, "value": value, "source": source, "meaning": _meaning(meanings, key)}
        for key, value, source in loaded.rows()
    ]
    emit(as_json, {"settings": rows}, _setting_lines(rows, meaning))


def _setting_lines(rows: Iterable[Mapping[str, Any]], meaning: bool) -> Iterator[str]:
    for row in rows:
        yield f"{row['key']} = {row['value']!r}  ({row['source']})"
        if meaning and row["meaning"]:
            yield f"    {row['meaning']}"


def _meaning(meanings: dict[str, str], key: str) -> str:
    """What a setting means; of one whose name a user chose, what its table does."""
    while key:
        if key in meanings:
            return meanings[key]
        for pattern, text in meanings.items():
            table, star, option = pattern.partition(".*.")
            if star and key.startswith(f"{table}.") and key.endswith(f".{option}"):
                return text
        key = key.rpartition(".")[0]
    return ""
