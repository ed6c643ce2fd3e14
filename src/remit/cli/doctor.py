"""``remit doctor``: checks an installation for chats, calls and a server, with advice."""

from __future__ import annotations

import codecs
import contextlib
import errno
import importlib.util
import os
import platform
import shutil
import socket
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from remit.cli.options import reads
from remit.cli.output import emit, progress
from remit.cli.roots import open_ledger, open_settings
from remit.kernel.errors import RemitError
from remit.kernel.message_text import count

if TYPE_CHECKING:
    from remit.kernel.root import Root
    from remit.kernel.settings import Settings
    from remit.ledger import LedgerClient

_CLOCKS_APART_S = 60.0
_FREE_BYTES = 1 << 28
_NEAR = 0.9
"""The part of a limit above which usage is near it."""
_LISTED = 5


class _Check(NamedTuple):
    """The result of one check.

    Attributes:
        name: the checked thing.
        state: ``ok``, ``advice`` (works, and could be better) or ``fail``.
        message: the finding.
        next_step: the advised action; empty if none is needed.
    """

    name: str
    state: str
    message: str
    next_step: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "check": self.name, "passed": self.state != "fail", "state": self.state,
            "message": self.message, "next_step": self.next_step or None,
        }  # fmt: skip


@click.command()
@click.option("--full", is_flag=True, help="Verify the whole ledger, whatever its size.")
@reads
def doctor(root: Path | None, as_json: bool, full: bool) -> None:
    """Check this installation; exit 1 if a check fails.

    A line marked "note" is advice. In a large ledger ([gates] full_entries) verification
    continues from the last one.
    """
    checks = [*_until_failure("root", _checks(root, full))]
    passed = all(check.state != "fail" for check in checks)
    found = {"passed": passed, "checks": [check.to_dict() for check in checks]}
    emit(as_json, found, _lines(checks))
    raise SystemExit(0 if passed else 1)


def _lines(checks: list[_Check]) -> Iterator[str]:
    marks = {"ok": "ok  ", "advice": "note", "fail": "FAIL"}
    for check in checks:
        yield f"{marks[check.state]}  {check.name}: {check.message}"
        if check.next_step:
            yield f"      next: {check.next_step}"


def _until_failure(name: str, checks: Iterator[_Check]) -> Iterator[_Check]:
    """Yield the checks of one part; an exception becomes a failed check."""
    try:
        yield from checks
    except RemitError as error:
        yield _Check(name, "fail", error.message, error.next_step)
    except Exception as error:  # noqa: BLE001 - the report has to be made
        yield _Check(name, "fail", f"{type(error).__name__}: {error}",
                     "`remit ledger verify` names what is damaged.")  # fmt: skip


def _checks(root: Path | None, full: bool) -> Iterator[_Check]:
    yield _Check("python", "ok", platform.python_version())
    yield _held("sqlite", sqlite3.sqlite_version_info >= (3, 38), sqlite3.sqlite_version,
                "Use a Python with SQLite 3.38 or later.")  # fmt: skip
    place, loaded = open_settings(root)
    settings = loaded.settings
    yield _Check("root", "ok", str(place.path))
    yield from _until_failure("files", _files(place))
    yield from _until_failure("text", _spaces(place, settings))
    yield from _until_failure("ledger", _of_ledger(place, settings, root, full))
    yield from _until_failure("port", _port(settings))
    yield from _until_failure("model", _models(place, settings))


def _of_ledger(place: Root, settings: Settings, root: Path | None, full: bool) -> Iterator[_Check]:
    with open_ledger(root) as client:
        yield from _until_failure("ledger", _ledger(client, settings, full))
        yield from _until_failure("budgets", _limits(client))
        yield from _until_failure("prices", _prices(place, settings, client))


def _held(name: str, holds: bool, message: str, next_step: str, state: str = "fail") -> _Check:
    return _Check(name, "ok", message) if holds else _Check(name, state, message, next_step)


def _files(place: Root) -> Iterator[_Check]:
    from remit.kernel.installed_files import InstalledFiles

    changed = InstalledFiles(place.path).changed()
    how = f"{len(changed)} installed files were changed, such as {changed[0]}" if changed else ""
    yield _held("packages", not changed, how or "no installed file was changed",
                "Copy the changes you need; `remit package restore` replaces changed "
                "files.")  # fmt: skip
    open_ = [path for path in (place.config, *sorted(place.keys.glob("*"))) if _others_read(path)]
    how = f"other users can read {', '.join(path.name for path in open_)}" if open_ else ""
    yield _held("modes", not open_, how or "only the owner can read remit.toml and the keys",
                f"chmod 600 {' '.join(map(str, open_))}", "advice")  # fmt: skip
    free = shutil.disk_usage(place.path).free
    yield _held("disk", free > _FREE_BYTES, f"{free // (1 << 20):,} MiB free",
                "Free some space: Remit refuses calls that it cannot record.")  # fmt: skip


def _spaces(place: Root, settings: Settings) -> Iterator[_Check]:
    """Yield checks for a byte order mark in ``remit.toml`` and for white space around keys."""
    marked = place.config.is_file() and place.config.read_bytes().startswith(codecs.BOM_UTF8)
    how = "begins with a byte order mark" if marked else "plain text"
    yield _held("remit.toml", not marked, how,
                f"Save {place.config} as UTF-8 without a byte order mark.", "advice")  # fmt: skip
    for name, provider in settings.providers.items():
        keys = {
            provider.api_key_env: os.environ.get(provider.api_key_env, ""),
            f"[providers.{name}] api_key": provider.api_key.get_secret_value(),
        }
        for source, key in keys.items():
            if key != key.strip():
                yield _Check("keys", "advice", f"{source} begins or ends with white space",
                             "Set the key without white space; Remit ignores the white "
                             "space.")  # fmt: skip


def _others_read(path: Path) -> bool:
    """Return True if a file with possible secrets is open to other users."""
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        secret = path.name == "remit.toml" or path.suffix in (".key", ".pem")
        return secret and stat.S_ISREG(mode) and bool(mode & 0o077)
    return False


def _ledger(client: LedgerClient, settings: Settings, full: bool) -> Iterator[_Check]:
    from remit.ledger import entry_id

    report = client.verify(
        jobs=os.cpu_count() or 1,
        since_mark=not full and client.count() > settings.gates.full_entries,
        progress=progress("verifying"),
    )
    lost, back = client.checkpoints.problem(), client.steps_back()
    apart_s = abs(client.wall_ms / 1000 - time.time())
    how = f"{count(report.entries, 'entry')}, {count(report.problem_count, 'problem')}"
    if report.last_full:
        how += f"; {report.unread} verified earlier (last full check: {report.last_full})"
    yield _held("ledger", report.verified, f"{how}. {lost}" if lost else how,
                "`remit ledger verify` names each problem.")  # fmt: skip
    how = "the latest timestamps are in order"
    if back:
        how = f"the clock was set back {count(len(back), 'time')}, last at {entry_id(back[-1])}; "
        how += "entry ids give the order"
    if apart_s > _CLOCKS_APART_S:
        how = f"the clocks of this machine and the database differ by {apart_s:.0f} s"
    yield _held("clock", apart_s <= _CLOCKS_APART_S, how, "Synchronise both clocks with NTP.")


def _limits(client: LedgerClient) -> Iterator[_Check]:
    """Yield a check for budgets that have used 90% or more of a limit."""
    from remit.gateway.auth import Directory, KeyStore
    from remit.gateway.budget import TokenBudgeter

    names = Directory(client).scope_names()
    with KeyStore(client) as keys:
        revoked = {f"key:{key.key_id}" for key in keys.list(include_revoked=True) if key.revoked}
    near = []
    for state in TokenBudgeter(client).list():
        if state.scope.startswith("session:") or state.scope in revoked:
            continue
        for spent, limit in (
            (state.spent_nano, state.nano_limit), (state.spent_tokens, state.token_limit),
            (state.turns, state.turn_limit),
        ):  # fmt: skip
            if limit is not None and spent >= limit * _NEAR:
                near.append(names.get(state.scope, state.scope))
                break
    how = f"90% or more is used of {count(len(near), 'budget')}: " if near else ""
    how += ", ".join(near[:_LISTED])
    yield _held("budgets", not near, how or "no budget is near its limit",
                "`remit budget show` shows the amounts; `remit budget set` raises a limit.",
                "advice")  # fmt: skip


def _prices(place: Root, settings: Settings, client: LedgerClient) -> Iterator[_Check]:
    from remit.packages import check_prices, prices_of

    found = prices_of(place, settings.budget.prices)
    how = f"table of {found.base.version.partition('+')[0]}"
    if found.file.data and not found.packaged:
        how += f", and {count(len(found.own.models), 'own price')} in {found.file.name}"
    problem = None
    if not found.packaged:
        problem = next(check_prices(place.path, client, settings.budget.prices), None)
    if problem is None:
        yield _Check("prices", "ok", how)
    else:
        yield _Check("prices", "fail", problem.message, problem.next_step)


def _port(settings: Settings) -> Iterator[_Check]:
    """Yield a check that a server can listen on the configured host and port."""
    host, port = settings.server.host, settings.server.port
    where = f"{host}:{port}"
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        how = f"port {port} is in use" if error.errno == errno.EADDRINUSE else (
            f"{where} cannot be used: {error.strerror or error}")  # fmt: skip
        yield _Check("port", "advice", how,
                     "If no `remit serve` runs there, choose another port with --port, or set "
                     "[server] host and port.")  # fmt: skip
    else:
        yield _Check("port", "ok", f"{where} is free for `remit serve`")


def _models(place: Root, settings: Settings) -> Iterator[_Check]:
    from remit.routing import RULES_UNAVAILABLE
    from remit.runtime import require_reachable, resolve_model, rules_of

    rules = rules_of(place, settings.routing)
    there = rules.version_hash != RULES_UNAVAILABLE
    yield _held("routing rules", there, "present" if there else "cannot be read",
                "`remit init` restores missing files.")  # fmt: skip
    providers, provider_id, model_id = resolve_model(settings)
    require_reachable(settings, providers, provider_id, model_id)
    yield _Check("model", "ok", f"{provider_id}/{model_id}")
    if provider_id == "local":
        there = importlib.util.find_spec("xllamacpp") is not None
        yield _held("local model runtime", there, "installed" if there else "missing",
                    "pip install 'remit[local]'")  # fmt: skip
