"""``remit init`` and ``remit doctor``."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sqlite3
from pathlib import Path

import click

from remit.cli.shared import common, echo_json, note, open_ledger, open_settings, reads
from remit.errors import RemitError


@click.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path, file_okay=False))
@common
def init(directory: Path | None, root: Path | None) -> None:
    """Make a root in DIRECTORY (default: ./.remit), or put back what is missing of one."""
    from remit.config import load_settings
    from remit.ledger import ledger_key, open_root_ledger
    from remit.root import Root, find_root

    given = directory or root
    place = Root(given) if given is not None else find_root()
    made = place.create()
    settings = load_settings(place.config).settings
    made += ledger_key(place, settings.ledger).create()
    open_root_ledger(place, settings.ledger, create=True).close()
    note(f"{place.path}: {len(made)} files made." if made else f"{place.path} is complete.")


@click.command()
@reads
def doctor(root: Path | None, as_json: bool) -> None:
    """Check that everything a conversation needs is there; exit 1 when something is not."""
    from remit.routing import RULES_UNAVAILABLE, load_rules
    from remit.runtime import require_reachable, resolve_model

    checks: list[dict[str, object]] = []

    def check(name: str, passed: bool, message: str) -> None:
        checks.append({"check": name, "passed": passed, "message": message})

    check("python", True, platform.python_version())
    check("sqlite", sqlite3.sqlite_version_info >= (3, 38), sqlite3.sqlite_version)
    try:
        place, loaded = open_settings(root)
        settings = loaded.settings
        check("root", True, str(place.path))
        free = shutil.disk_usage(place.path).free
        check("disk", free > 1 << 28, f"{free // (1 << 20):,} MiB free")
        with open_ledger(root) as client:
            report = client.verify()
        check(
            "ledger", report.verified, f"{report.entries} entries, {report.problem_count} problems"
        )
        rules = load_rules(place.path / settings.routing.rules)
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
    if as_json:
        echo_json({"passed": passed, "checks": checks})
    else:
        for item in checks:
            click.echo(
                f"{'ok  ' if item['passed'] else 'FAIL'}  {item['check']}: {item['message']}"
            )
    raise SystemExit(0 if passed else 1)
