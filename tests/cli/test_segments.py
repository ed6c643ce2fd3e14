"""``remit ledger segment``, and the commands that read what it wrote."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from remit.agents.sessions import SessionManager
from remit.gateway.leases import LeaseManager
from remit.kernel.errors import NotFoundError
from remit.kernel.root import Root
from remit.kernel.settings import default_settings, load_settings
from remit.ledger import LedgerEntry, open_root_ledger
from tests.cli.conftest import Run
from tests.ledger.segments.writing import sessions
from tests.support.commands import require_said
from tests.support.stores import conversation


def _json(*arguments: object, remit: Run, code: int = 0) -> Any:
    done = remit(*map(str, arguments), "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_old_entries_are_moved_read_checked_exported_and_erased(remit: Run, work: Path) -> None:
    root, archive = work / "root", work / "archive"
    assert remit("init", "--bare", str(root)).returncode == 0

    def ledger(*arguments: object) -> tuple[object, ...]:
        return ("ledger", *arguments, "--root", root)

    with open_root_ledger(Root(root), load_settings(Root(root).config).settings.ledger) as client:
        own = SessionManager(client)
        own.start()
        asyncio.run(own.aadd_turn("hi", "hello"))
        sessions(client, 70)
        conversation(client, "SES-NEW", 1)
        client.write_many([LedgerEntry("NOTE", "S", "D", "r") for _ in range(100)])
    whole = _json(*ledger("query"), remit=remit)["entries"]
    for given in (
        (),
        ("--before", "300"),
        ("--finish", "--before", "300"),
        ("--convert", work, "--finish"),
    ):
        assert remit(*map(str, ledger("segment", *given))).returncode == 2
    require_said(
        remit(*map(str, ledger("segment", "--before", "soon", "--out", archive))),
        "is not a time",
        code=2,
    )
    # The earlier name, with an option that has no meaning any more.
    old = ("archive", "--before", "511", "--out", archive, "--format", "jsonl")
    done = _json(*ledger(*old), remit=remit)
    assert (done["first"], done["end"], done["entries"] > 240) == (0, 256, True)
    again = remit(*map(str, ledger("segment", "--before", "511", "--out", archive)))
    assert again.stderr.startswith("Nothing to move: entries are moved 256 at a time")
    assert again.stdout == ""
    converted = _json(*ledger("segment", "--convert", archive), remit=remit)
    assert converted == {"converted": 0}
    assert _json(*ledger("query", "--archive", archive), remit=remit)["entries"][:-1] == whole
    here = remit(*map(str, ledger("query", "--limit", "3")))
    assert "add --archive DIR to read them" in here.stderr
    gone = next(one for one in whole if one["metadata"].get("session_id") == "SES-4")
    require_said(remit(*map(str, ledger("show", gone["id"]))), "was archived")
    shown = _json(*ledger("show", gone["id"], "--archive", archive), remit=remit)
    assert shown == gone
    record = remit(*map(str, ledger("show", gone["id"], "--record", "--archive", archive)))
    assert f'"id":"{gone["id"]}"' in record.stdout
    assert remit(*map(str, ledger("prove", gone["id"]))).returncode == 0
    checked = remit(*map(str, ledger("verify")))
    assert re.search(r"archived: 2\d\d more entries", checked.stdout)
    assert "add --archive DIR to read them" in checked.stderr
    assert _json(*ledger("verify", "--archive", archive), remit=remit)["verified"]
    with (
        open_root_ledger(Root(root), load_settings(Root(root).config).settings.ledger) as client,
        pytest.raises(NotFoundError, match="was archived and cannot continue"),
    ):
        SessionManager(client, own.session_id).require()
    listed = remit("session", "show", own.session_id, "--root", str(root))
    assert "archived; " in listed.stdout
    # Erasure and retention ask for the archive.
    for given in (("erase", "--session", "SES-4"), ("retain",)):
        refused = remit(*map(str, ledger(*given)))
        assert refused.returncode
        assert "--archive DIR" in refused.stderr
    asked = ("--yes", "--reason", "asked", "--archive", archive)
    erased = _json(*ledger("erase", "--session", "SES-4", *asked), remit=remit)
    assert erased["values"] == 6 + 6 + 5 + 6
    assert _json(*ledger("retain", "--archive", archive), remit=remit) == {"erasures": []}
    assert _json(*ledger("verify", "--archive", archive), remit=remit)["verified"]
    with (
        open_root_ledger(Root(root), load_settings(Root(root).config).settings.ledger) as client,
        LeaseManager(client, default_settings().leases).hold_blocking("archive"),
    ):
        for given in (
            ("segment", "--before", "511", "--out", archive), ("archive", "--finish"),
            ("erase", "--session", "SES-5", *asked), ("retain", "--archive", archive),
        ):  # fmt: skip
            refused = remit(*map(str, ledger(*given)))
            assert refused.returncode == 1, refused.stdout
            assert (
                f"Another process is working on archive: process {os.getpid()} on" in refused.stderr
            )
    file = work / "all.jsonl"
    exported = remit(*map(str, ledger("export", "--out", file, "--archive", archive)))
    assert exported.returncode == 0, exported.stderr
    assert b'"leaf"' not in file.read_bytes()
    found = _json(
        *ledger("query", "--text", '"question 0 of SES-5"', "--archive", archive), remit=remit
    )
    assert found["entries"]
    finished = _json(*ledger("segment", "--finish", "--archive", archive), remit=remit)
    assert finished == {"removed": 0, "purged": 0, "remainder": None}
    (segment,) = archive.glob("*.db")
    segment.write_bytes(segment.read_bytes()[:-5000])
    broken = _json(*ledger("verify", "--archive", archive), remit=remit, code=1)
    assert segment.name in broken["problems"][0]
    assert broken["entries"] > 200
    finished = _json(*ledger("archive", "--finish"), remit=remit)
    assert finished == {"removed": 0, "purged": 0, "remainder": None}
