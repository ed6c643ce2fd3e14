"""Whatever is edited in a ledger's database past Remit, verification finds it, on both stores.

`edits.toml` holds the edits, by the ledger that is edited.
"""

from __future__ import annotations

import functools
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import Content, LedgerClient, LedgerEntry, VerificationReport
from remit.ledger.tlog import VerifierKey
from tests.ledger.test_subjects import people
from tests.ledger.test_verification import exchanges, signed
from tests.support.soak import sample
from tests.support.stores import SIGNER, conversation, outside

EDITS: dict[str, list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("edits.toml").read_text()
)


def conversations(target: str) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        for number in range(6):
            conversation(client, f"SES-{number}", 4)


def types(target: str) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        for number in range(60):
            conversation(client, f"SES-{number}", 5)
        client.erase("LED-00000003", reason="r")


def layout(target: str) -> None:
    with LedgerClient(target) as client:
        conversation(client, "SES-AAAAAAAA", 2)
        assert len(list(client.query(text="question"))) == 2  # makes the text index


def rows(target: str) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        conversation(client, "SES-A", 3)
        conversation(client, "SES-B", 2)
        for text in (b'{"a":1,"a":2}', b'{"a":1,"a":"%s"}' % (b"x" * 20_000)):
            client.write(LedgerEntry("E", "S", "D", "r", metadata={"x": Content.exact(text)}))
        client.checkpoint()


LEDGERS: dict[str, tuple[Callable[[str], None], VerifierKey | None]] = {
    "exchanges": (exchanges, None),
    "conversations": (conversations, SIGNER.verifier_key),
    "types": (types, SIGNER.verifier_key),
    "layout": (layout, None),
    "rows": (rows, SIGNER.verifier_key),
    "people": (people, None),
    "signed": (signed, SIGNER.verifier_key),
}


def _verify(target: str, name: str) -> VerificationReport:
    with LedgerClient(target, create=False, verifier_key=LEDGERS[name][1]) as client:
        return client.verify()


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str, str], str]:
    @functools.cache
    def make(store: str, name: str) -> str:
        target = str(tmp_path_factory.mktemp(name) / "ledger.db")
        if store == "postgresql":
            target = request.getfixturevalue("postgres").database()
        LEDGERS[name][0](target)
        assert _verify(target, name).problems == []
        return target

    return make


@pytest.mark.soak
@pytest.mark.parametrize(
    ("store", "name", "edit"),
    [
        pytest.param(store, name, edit, id=f"{store}, {name}: {edit['name']}")
        for name, edits in EDITS.items()
        for edit, store in sample(
            (
                (edit, store)
                for edit in edits
                for store in ([edit["store"]] if "store" in edit else ["sqlite", "postgresql"])
            ),
            12,
        )
    ],
)
def test_an_edit_is_found(
    made: Callable[[str, str], str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    store: str,
    name: str,
    edit: dict[str, Any],
) -> None:
    if store == "sqlite":
        target, blob = str(shutil.copy(made(store, name), tmp_path / "ledger.db")), "zeroblob(32)"
    else:
        server = request.getfixturevalue("postgres")
        target, blob = server.database(made(store, name)), "''::bytea"
        request.addfinalizer(lambda: server.drop(target))
    outside(target, *(sql.replace("{blob}", blob) for sql in edit["sql"]))
    report = _verify(target, name)
    if edit.get("says") == "":  # the next search makes it again
        assert report.problems == []
        return
    assert not report.verified
    assert edit.get("says", "") in " | ".join(map(str, report.problems))
    assert edit.get("seq", report.first_bad_seq) == report.first_bad_seq, report.problems
