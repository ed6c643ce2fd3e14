"""The table of keys is held against the record: an edit past Remit is found, and named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remit.gateway.auth import Identity, KeyStore
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerEntry
from remit.providers.wire import PASSED_PATHS
from remit.runtime.state_tables import check_state
from tests.support.stores import outside


@pytest.fixture
def ledger(target: str) -> Iterator[LedgerClient]:
    with LedgerClient(target, checks=(check_state,)) as opened:
        yield opened


def _problems(ledger: LedgerClient) -> list[str]:
    return [problem.message for problem in ledger.verify(deep=False).problems]


def test_what_keys_go_through_is_all_on_record(ledger: LedgerClient) -> None:
    with KeyStore(ledger) as keys:
        keys.create("a", role="operator", models=["o*"], agents=["w"], tiers=["ho1"], user_id="u")
        keys.create("b", team_id="t", organisation_id="o", expires="2099-01-01T00:00:00Z")
        keys.rotate("a", grace_s=3600)
        keys.rotate("a", grace_s=3600)
        assert _problems(ledger) == []
        keys.rotate("a")
        keys.revoke("b")
        keys.rotate("a", grace_s=60)
        keys.revoke("a", "no more")
        keys.create("a")
        assert _problems(ledger) == []


@pytest.mark.any_store
@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("role = 'admin'", "is 'admin', by the ledger 'agent'"),
        ("hash = '" + "ab" * 32 + "'", "is not that of its entry"),
        ("old_hash = '" + "ab" * 32 + "', old_until = '2099-01-01T00:00:00Z'", "old_until of"),
        ("models = '[]'", "models of"),
        ("user_id = 'victim'", "is 'victim'"),
        ("expires = ''", "expires of"),
        ("key_id = 'KEY-OTHER'", "there is no row KEY-OTHER"),
    ],
)
def test_an_edited_key_is_found(target: str, ledger: LedgerClient, edit: str, said: str) -> None:
    with KeyStore(ledger) as keys:
        made = keys.create("x", models=["m"], user_id="u", expires="2099-01-01T00:00:00Z")
        keys.create("y")
    outside(target, f"UPDATE virtual_keys SET {edit} WHERE name = 'x'")
    found = _problems(ledger)
    assert any(said in one for one in found), found
    if "key_id" not in edit:
        assert all(made.key_id in one for one in found)


def test_a_key_that_is_taken_out_and_a_wrong_epoch_are_found(
    target: str, ledger: LedgerClient
) -> None:
    with KeyStore(ledger) as keys:
        made = keys.create("x")
        keys.create("y")
    outside(target, "DELETE FROM virtual_keys WHERE name = 'x'", "UPDATE key_epoch SET epoch = 1")
    assert _problems(ledger) == [
        "key_epoch: there is [1], and the latest change of a key is 2",
        f"virtual_keys: {made.key_id} has no row",
    ]


def test_an_import_that_never_was_excuses_nothing(target: str, ledger: LedgerClient) -> None:
    with KeyStore(ledger) as keys:
        made = keys.create("x")
    size = ledger.count()
    outside(target, f"INSERT INTO ledger_info VALUES ('imported', '{size}')")
    (found,) = _problems(ledger)
    assert found == (
        f"virtual_keys: by the ledger there is no row {made.key_id}; by ledger_info an import "
        f"brought the first {size} entries, and an import brings no such rows"
    )


def test_what_an_older_version_did_not_record_is_named(target: str, ledger: LedgerClient) -> None:
    made = {
        "key_id": "KEY-1", "name": "x", "prefix": "sk-remit-abcd", "requested_by": "operator",
        "role": "agent", "expires": "", "user_id": "", "team_id": "", "organisation_id": "",
        "models": [], "agents": [], "tiers": [],
    }  # fmt: skip
    ledger.write(LedgerEntry("KEY_CREATED", "KEY-1", "CREATED", "Key created", metadata=made))
    outside(
        target,
        "INSERT INTO virtual_keys VALUES ('KEY-1', 'x', 'agent', 'sk-remit-abcd', '', '', '', '[]',"
        f" '[]', '[]', '2026-01-01T00:00:00Z', '', '', '', '', '', '{'ab' * 32}', '', 1, '[]',"
        " '[]')",
        "UPDATE key_epoch SET epoch = 1",
    )
    report = ledger.verify(deep=False)
    assert report.verified, report.problems
    (note,) = report.notes
    assert "KEY-1" in note
    assert "remit key rotate" in note
    with KeyStore(ledger) as keys:
        keys.rotate("x")
    report = ledger.verify(deep=False)
    assert (report.problems, report.notes) == ([], [])
    outside(target, "UPDATE virtual_keys SET role = 'admin'")
    assert "is 'admin'" in _problems(ledger)[0]


# -- The allow-lists of a key for requests that call no model ----------------------------------


_ROWS = {row.name: row for row in PASSED_PATHS if row.dialect == "openai"}
_MAKE, _SHOW = _ROWS["POST /vector_stores"], _ROWS["GET /vector_stores/{id}"]


def test_a_change_replaces_the_lists_and_leaves_the_rest(ledger: LedgerClient) -> None:
    with KeyStore(ledger) as keys:
        made = keys.create("k", models=["gpt-*"], user_id="u", pass_through=["/vector_stores*"])
        keys.rotate("k", grace_s=3600)
        before = keys.find("k")
        changed = keys.change("k", pass_through_unpriced=["*"])
        assert changed.pass_through == ("/vector_stores*",)
        assert (before.prefix, before.rotated, before.old_until) == (
            changed.prefix, changed.rotated, changed.old_until,
        )  # fmt: skip
        assert changed.identity.may_pass(_MAKE)
        assert not keys.change("k", pass_through=[]).identity.may_pass(_MAKE)
        assert keys.find("k").identity.may_pass(_SHOW)
        keys.rotate("k")
        assert keys.find("k").pass_through_unpriced == ("*",)
        assert keys.change("k") == keys.change("k", pass_through=[]) == keys.find("k")
        assert _problems(ledger) == []
        entries = [*ledger.query(event_type="KEY_CREATED", submission_id=made.key_id)]
        assert [entry.decision for entry in entries] == [
            "CREATED", "ROTATED", "CHANGED", "CHANGED", "ROTATED",
        ]  # fmt: skip


@pytest.mark.any_store
@pytest.mark.parametrize(
    "pattern",
    ["/nothing", "PUT /vector_stores", "vector_stores", "", " ", "[", "/vector_stores/vs_1",
     "POST  /uploads", "\x00"],
)  # fmt: skip
def test_a_pattern_without_a_path_is_refused(pattern: str, ledger: LedgerClient) -> None:
    with KeyStore(ledger) as keys:
        keys.create("k")
        for call in (
            lambda: keys.create("other", pass_through=[pattern]),
            lambda: keys.change("k", pass_through_unpriced=[pattern]),
        ):
            with pytest.raises(InvalidInputError):
                call()
        assert keys.find("k").pass_through_unpriced == ()


def test_a_token_may_do_no_more_than_the_key_behind_it() -> None:
    key = Identity("k", "agent", pass_through=("/uploads*",))
    token = Identity("t", "agent", pass_through=("*",), within=key)
    assert not token.may_pass(_MAKE)
    assert token.may_pass(_ROWS["POST /uploads"])
    assert token.may_pass(_SHOW)
    assert not token.may_pass(_ROWS["POST /uploads"], unpriced=True)
