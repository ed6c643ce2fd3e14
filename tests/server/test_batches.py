"""Batches by both official SDKs: reserved, recorded and settled result by result."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from aiohttp import web

from remit.gateway.auth import NewKey
from remit.gateway.budget import BudgetScope, TokenBudgeter, audit_budgets
from remit.ledger import Transaction, wire_body
from tests.server.conftest import QUICK
from tests.server.erasing import holds
from tests.server.running import Served, new_session, prompt, serving
from tests.server.sdks import anthropic_at, openai_at
from tests.support.commands import run_remit
from tests.support.keeping import Keeper, keeping
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

BEFORE = "keeper"
TOML = QUICK + "recover_every_s = 3600\n"
USD = 1_000_000_000  # nano-dollars
OPENAI_LINE = 100 * 0.15e-6 / 2 + 10 * 0.60e-6 / 2
"""What a result of the server's costs on gpt-4o-mini at half price, in dollars."""
ANTHROPIC_LINE = 100 * 3e-6 / 2 + 10 * 15e-6 / 2


def _body(**more: Any) -> dict[str, Any]:
    return prompt("hello", **{"max_tokens": 50, **more})


def _line(custom_id: str, **body: Any) -> bytes:
    line = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions",
            "body": _body(**body)}  # fmt: skip
    return json.dumps(line).encode()


def _request(custom_id: str, **body: Any) -> Any:
    return {"custom_id": custom_id, "params": _body(model="claude-sonnet-4-5", **body)}


def _create(client: openai.OpenAI, *lines: bytes) -> Any:
    file = client.files.create(file=("in.jsonl", b"\n".join(lines) + b"\n"), purpose="batch")
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )


def _money(served: Served, key: NewKey) -> tuple[int, int]:
    """Spent and reserved by a key, nano-dollars."""
    [account] = TokenBudgeter(served.ledger).status(BudgetScope(key_id=key.key_id))
    return account.spent_nano, account.reserved_nano


def _equal(served: Served) -> None:
    audit = audit_budgets(served.ledger)
    assert audit.equal, audit.differences


def test_an_openai_batch_from_file_to_results(served: Served, keeper: Keeper, session: str) -> None:
    key = served.key(usd_nano=USD)
    client = openai_at(served, key.key, session)
    odd = b'{ "custom_id":"b","method":"POST","url":"/v1/chat/completions", "body": ' + (
        b'{"messages" : [ {"role":"user","content":"h\\u00e9"} ],"model":"gpt-4o-mini",'
        b'"max_tokens":7, "novel":1.50} }'
    )
    batch = _create(client, _line("a"), odd)
    spent, reserved = _money(served, key)
    assert spent == 0
    assert reserved > 0
    _equal(served)
    made = served.entries("EXCHANGE", session)[1].metadata
    assert made["wire"] == "openai.batches"
    assert made["cost_usd"] == 0
    assert served.ledger.exact(served.entries("EXCHANGE", session)[1].id)["prompt"] == [
        _line("a"), odd,
    ]  # fmt: skip
    assert client.batches.retrieve(batch.id).status == "in_progress"
    keeper.finish(batch.id)
    done = client.batches.retrieve(batch.id)
    assert done.output_file_id is not None
    results = client.files.content(done.output_file_id).content.splitlines()
    assert results == keeper.files[done.output_file_id][1].splitlines()
    first, second = served.entries("EXCHANGE", session)[2:]
    told = second.metadata
    assert (told["wire"], told["custom_id"], told["batch_id"]) == ("openai.chat", "b", batch.id)
    assert told["response"] == "answer to b"
    assert told["cost_usd"] == pytest.approx(OPENAI_LINE, abs=2e-9)
    assert told["cost_certainty"] == "measured"
    exact = served.ledger.exact(second.id)
    assert wire_body(exact, told["cut"]) == odd[odd.index(b'{"messages"') : -2]
    assert (
        exact["answer"]
        == results[1][results[1].index(b'{"id": "chatcmpl') : -len(b'}, "error": null}')]
    )
    assert first.metadata["dispatch_entry_id"] != told["dispatch_entry_id"]
    spent, reserved = _money(served, key)
    assert reserved == 0
    assert spent / USD == pytest.approx(2 * OPENAI_LINE, abs=4e-9)
    _equal(served)
    assert batch.id in [found.id for found in client.batches.list()]
    client.batches.retrieve(batch.id)
    assert len(served.entries("EXCHANGE", session)) == 4  # nothing twice
    assert not _rows_of(served, batch.id)


def test_an_anthropic_batch_and_its_results(served: Served, keeper: Keeper, session: str) -> None:
    key = served.key(usd_nano=USD)
    client = anthropic_at(served, key.key, session)
    keeper.answers["bad"] = {
        "type": "errored",
        "error": {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}},
    }
    keeper.answers["late"] = {"type": "expired"}
    batch = client.messages.batches.create(
        requests=[_request("good"), _request("bad"), _request("late")]
    )
    keeper.finish(batch.id)
    results = {one.custom_id: one.result for one in client.messages.batches.results(batch.id)}
    assert results["good"].type == "succeeded"
    assert results["good"].message.content[0].text == "answer to good"  # type: ignore[union-attr]
    assert (results["bad"].type, results["late"].type) == ("errored", "expired")
    told = {
        entry.metadata["custom_id"]: entry
        for entry in served.entries("EXCHANGE", session)
        if "custom_id" in entry.metadata
    }
    assert told["good"].metadata["wire"] == "anthropic.messages"
    assert told["good"].metadata["cost_usd"] == pytest.approx(ANTHROPIC_LINE, abs=2e-9)
    for name, code in (("bad", "INVALID_REQUEST"), ("late", "BATCH_EXPIRED")):
        assert told[name].decision == "ERROR"
        assert (told[name].metadata["error_code"], told[name].metadata["cost_usd"]) == (code, 0)
    assert _money(served, key) == (round(told["good"].metadata["cost_usd"] * USD), 0)
    _equal(served)
    assert batch.id in [found.id for found in client.messages.batches.list()]
    client.messages.batches.delete(batch.id)
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.retrieve(batch.id)


def test_what_expires_is_free_and_shown(served: Served, keeper: Keeper, session: str) -> None:
    key = served.key(usd_nano=USD)
    client = openai_at(served, key.key, session)
    batch = _create(client, _line("a"), _line("b"), _line("c"))
    client.batches.cancel(batch.id)
    keeper.finish(batch.id, only=1, how="expired")
    client.batches.retrieve(batch.id)
    spent, reserved = _money(served, key)
    assert reserved == 0
    assert spent / USD == pytest.approx(OPENAI_LINE, abs=2e-9)
    entries = served.entries("EXCHANGE", session)
    codes = [entry.metadata.get("error_code") for entry in entries]
    assert codes == [None, None, None, None, "BATCH_EXPIRED", "BATCH_EXPIRED"]
    _equal(served)
    told = run_remit("trace", session, "--root", served.root)
    assert told.returncode == 0, told.stderr
    assert "answer to a" in told.stdout
    told = run_remit("ledger", "show", entries[1].id, "--json", "--root", served.root)
    assert json.loads(told.stdout)["metadata"]["prompt"][0]["custom_id"] == "a"


def _age(served: Served, batch_id: str, seconds: int) -> int:
    """Have a batch be made so long ago; return when, in seconds."""

    def call(tx: Transaction) -> int:
        sql = (
            "UPDATE batches SET created_ms = created_ms - ? WHERE batch_id LIKE ? "
            "RETURNING created_ms"
        )
        [(made_ms,)] = tx.execute(sql, (seconds * 1000, f"%/{batch_id}"))
        return int(made_ms)

    return served.ledger.transact(call) // 1000


def _rows_of(served: Served, batch_id: str) -> list[str]:
    """Return the tables that have a row of the batch; other tests may leave batches open."""
    columns = {"batch_lines": "batch_id", "batches": "batch_id", "holds": "reservation_id"}
    return [
        table
        for table, column in columns.items()
        if served.ledger.select(f"SELECT 1 FROM {table} WHERE {column} LIKE ?", (f"%{batch_id}",))
    ]


def _settled_at_the_bound(
    served: Served, key: NewKey, batch_id: str, reserved: int, session: str
) -> None:
    assert _money(served, key) == (reserved, 0)
    told = [entry.metadata for entry in served.entries("EXCHANGE", session)]
    results = [one for one in told if "custom_id" in one]
    assert {one["cost_certainty"] for one in results} == {"upper_bound"}
    assert not _rows_of(served, batch_id)
    _equal(served)


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_batch_that_is_gone_while_it_runs_is_settled(
    served: Served, keeper: Keeper, session: str, forgotten: bool
) -> None:
    key = served.key(usd_nano=USD)
    client = anthropic_at(served, key.key, session)
    batch = client.messages.batches.create(requests=[_request("a"), _request("b")])
    _, reserved = _money(served, key)
    assert reserved > 0
    if forgotten:
        del keeper.batches[batch.id]
        with pytest.raises(anthropic.NotFoundError):
            client.messages.batches.retrieve(batch.id)
    else:
        client.messages.batches.delete(batch.id)
    _settled_at_the_bound(served, key, batch.id, reserved, session)


@pytest.mark.parametrize("says", [True, False])
def test_a_batch_is_settled_as_it_expires(
    served: Served, keeper: Keeper, session: str, says: bool
) -> None:
    key = served.key(usd_nano=USD)
    client = openai_at(served, key.key, session)
    batch = _create(client, _line("a"))
    _, reserved = _money(served, key)
    age_s = 90 if says else 86_400 - 600
    made_s = _age(served, batch.id, age_s)
    if says:
        keeper.batches[batch.id]["expires_at"] = made_s + 3600
    client.batches.retrieve(batch.id)
    assert _money(served, key) == (0, reserved)
    if says:
        keeper.batches[batch.id]["expires_at"] = made_s + 60
    else:
        _age(served, batch.id, 1200)
    client.batches.retrieve(batch.id)
    _settled_at_the_bound(served, key, batch.id, reserved, session)


@pytest.mark.parametrize("is_out", [True, False])
def test_an_id_that_a_batch_had_before_names_another_batch(
    served: Served, keeper: Keeper, session: str, is_out: bool
) -> None:
    """Ids are unique at one provider at best; the later batch is settled as any other."""
    first = served.key(usd_nano=USD)
    batch = _create(openai_at(served, first.key, session), _line("a"))
    if not is_out:
        keeper.finish(batch.id)
        openai_at(served, first.key, session).batches.retrieve(batch.id)
    for _ in range(2):
        key, own = served.key(usd_nano=USD), new_session()
        client = openai_at(served, key.key, own)
        file = client.files.create(file=("in.jsonl", _line("b") + b"\n"), purpose="batch")
        numbers = keeper._numbers
        keeper._numbers = itertools.count(int(batch.id.removeprefix("batch_")))
        again = client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        keeper._numbers = numbers
        assert again.id == batch.id
        _, reserved = _money(served, key)
        assert reserved > 0
        _equal(served)
        served.check()
        keeper.finish(batch.id)
        assert client.batches.retrieve(batch.id).status == "completed"
        assert [found.id for found in client.batches.list()] == [batch.id]
        spent, reserved = _money(served, key)
        assert (spent / USD, reserved) == (pytest.approx(OPENAI_LINE, abs=2e-9), 0)
        told = served.entries("EXCHANGE", own)[-1].metadata
        assert (told["batch_id"], told["custom_id"]) == (batch.id, "b")
    openai_at(served, first.key, session).batches.retrieve(batch.id)
    assert _money(served, first)[1] == 0
    _equal(served)


def test_a_batch_beyond_the_budget_is_refused_whole(served: Served, session: str) -> None:
    key = served.key(usd_nano=40_000)
    client = openai_at(served, key.key, session)
    one = _create(client, _line("a"))
    with pytest.raises(openai.APIStatusError) as refused:
        _create(client, _line("a"), _line("b"))
    assert refused.value.status_code in (402, 429)
    assert _money(served, key)[0] == 0
    assert one.id in [found.id for found in client.batches.list()]
    _equal(served)


@pytest.mark.parametrize(
    ("line", "status", "where"),
    [
        (_line("b", model="gpt-4o"), 403, "input_file_id[1].model"),
        (_line("b", model="openai/gpt-4o-mini"), 400, "input_file_id[1].model"),
        (_line("a"), 400, "input_file_id[1].custom_id"),
        (_line("b", max_tokens=-1), 400, "input_file_id[1].body.max_tokens"),
        (b"[]", 400, "input_file_id[1]"),
        (b'{"custom_id": "b"}', 400, "input_file_id[1].url"),
        (b"{", 400, "input_file_id[1]"),
        (
            _line("b")[:-1] + _line("b")[_line("b").index(b', "body"') :],
            400,
            "input_file_id[1].body",
        ),
        (_line("b")[:-1] + b', "custom_id": "c"}', 400, "input_file_id[1].custom_id"),
    ],
)
def test_a_line_that_cannot_be_refuses_the_batch(
    served: Served, keeper: Keeper, line: bytes, status: int, where: str
) -> None:
    client = openai_at(served, served.key(models=("gpt-4o-mini",)).key)
    batches = len(keeper.batches)
    with pytest.raises(openai.APIStatusError) as refused:
        _create(client, _line("a"), line)
    assert refused.value.status_code == status
    assert refused.value.body["param"] == where  # type: ignore[index]
    assert "line 2" in refused.value.message
    with pytest.raises(openai.APIStatusError) as refused:  # Blank lines count as lines.
        _create(client, b"\n", _line("a") + b"\r\n\r\n ", b"[]")
    assert refused.value.body["param"] == "input_file_id[5]"  # type: ignore[index]
    assert "line 6" in refused.value.message
    assert len(keeper.batches) == batches


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("comes", [True, False])
def test_a_batch_waits_for_the_rest_of_its_results(
    served: Served, keeper: Keeper, session: str, dialect: str, comes: bool
) -> None:
    key = served.key(usd_nano=USD)
    if dialect == "openai":
        client = openai_at(served, key.key, session).batches
        batch = _create(openai_at(served, key.key, session), _line("a"), _line("b"))
        keeper.finish(batch.id, how="expired")
        told, line = keeper.batches[batch.id], OPENAI_LINE
        told["request_counts"] = {"total": 2, "completed": 2, "failed": 0}
        output = told["output_file_id"]
        head, data = keeper.files[output]
        first = data.index(b"\n") + 1
        keeper.files[output] = (head, data[: first + 30])
    else:
        client = anthropic_at(served, key.key, session).messages.batches
        batch = client.create(requests=[_request("a"), _request("b")])
        keeper.finish(batch.id)
        told, line = keeper.batches[batch.id], ANTHROPIC_LINE
        told["request_counts"] |= {"processing": 0, "succeeded": 2}
        lines = keeper.lines[batch.id]
        keeper.lines[batch.id] = lines[:1]
    client.retrieve(batch.id)
    spent, held = _money(served, key)
    assert spent / USD == pytest.approx(line, abs=2e-9)
    assert held > 0
    if comes:
        if dialect == "openai":
            keeper.files[output] = (head, data)
        else:
            keeper.lines[batch.id] = lines
        client.retrieve(batch.id)
        assert _money(served, key) == (pytest.approx(2 * line * USD, abs=4), 0)
    else:
        _age(served, batch.id, 35 * 86_400)
        client.retrieve(batch.id)
        assert _money(served, key) == (spent + held, 0)
    _equal(served)


def test_another_key_has_no_part_in_it(served: Served, keeper: Keeper) -> None:
    client = openai_at(served, served.key().key)
    batch = _create(client, _line("a"))
    other = openai_at(served, served.key().key)
    for call in (other.batches.retrieve, other.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            call(batch.id)
    with pytest.raises(openai.NotFoundError):
        other.batches.create(
            input_file_id=batch.input_file_id, endpoint="/v1/chat/completions",
            completion_window="24h",
        )  # fmt: skip
    assert list(other.batches.list()) == []
    keeper.finish(batch.id)
    done = client.batches.retrieve(batch.id)
    assert done.output_file_id is not None
    with pytest.raises(openai.NotFoundError):
        other.files.content(done.output_file_id)


def test_what_was_erased_is_settled(served: Served, keeper: Keeper, session: str) -> None:
    key = served.key(usd_nano=USD)
    client = anthropic_at(served, key.key, session)
    batch = client.messages.batches.create(requests=[_request("a"), _request("b")])
    served.ledger.erase(session_id=session, reason="asked to", requested_by="test")
    keeper.finish(batch.id)
    assert len(list(client.messages.batches.results(batch.id))) == 2
    told = [entry.metadata for entry in served.entries("EXCHANGE", session)][1:]
    assert [one["cost_usd"] for one in told] == [pytest.approx(ANTHROPIC_LINE, abs=2e-9)] * 2
    assert [one["parameters"] for one in told] == [{"batch_id": batch.id}] * 2
    assert _money(served, key)[1] == 0
    _equal(served)


@pytest.mark.parametrize("target", ["person", "session", "entry"])
def test_results_of_an_erased_request_bring_no_text_of_it(
    served: Served, keeper: Keeper, session: str, target: str
) -> None:
    key = served.key(usd_nano=USD)
    names = [f"mark-{name}-{session}" for name in ("good", "bad")]
    keeper.answers[names[1]] = {
        "type": "errored",
        "error": {"type": "error", "error": {"type": "invalid_request_error",
                                             "message": f"not with {names[1]}"}},
    }  # fmt: skip
    headers = {"x-remit-session": session, "x-remit-subject": f"person of {session}",
               "anthropic-version": "2023-06-01"}  # fmt: skip
    body = {"requests": [_request(name) for name in names]}
    status, raw, _ = served.ask(
        "POST", "/v1/messages/batches", body, token=key.key, headers=headers
    )
    batch_id = json.loads(raw)["id"]
    entry = served.exchange(session).id
    erased: dict[str, Any] = {
        "person": {"subject_id": f"person of {session}"}, "session": {"session_id": session},
        "entry": {"entry_id": entry},
    }[target]  # fmt: skip
    served.ledger.erase(**erased, reason="asked to", requested_by="test")
    keeper.finish(batch_id)
    path = f"/v1/messages/batches/{batch_id}/results"
    status, raw, _ = served.ask("GET", path, token=key.key, headers=headers)
    assert status == 200
    assert all(name in raw.decode() for name in names)
    told = [one.metadata for one in served.entries("EXCHANGE", session)][1:]
    assert [one["outcome"] for one in told] == ["success", "error"]
    assert {name: found for name in names if (found := holds(served, name))} == {}
    assert _money(served, key)[1] == 0
    _equal(served)


@pytest.mark.parametrize("status", [200, 400])
def test_a_batch_that_nobody_named_is_charged_at_its_bound_and_a_refused_one_holds_nothing(
    served: Served, keeper: Keeper, session: str, status: int
) -> None:
    key = served.key(usd_nano=USD)
    said = b'{"type":"error","error":{"type":"invalid_request_error","message":"no batch"}}'
    said = said if status == 400 else b"made, somehow"
    keeper.refuse = lambda request: web.Response(
        body=said, status=status, content_type="application/json"
    )
    try:
        answer = served.ask(
            "POST", "/v1/messages/batches", {"requests": [_request("a")]}, token=key.key,
            headers={"x-remit-session": session},
        )  # fmt: skip
    finally:
        keeper.refuse = lambda request: None
    assert answer[:2] == (status, said)
    told = served.exchange(session).metadata
    if status == 200:
        assert (told["cost_certainty"], told["cost_usd"] > 0) == ("upper_bound", True)
    assert _money(served, key) == (round(told["cost_usd"] * USD) if status == 200 else 0, 0)
    assert list(anthropic_at(served, key.key, session).messages.batches.list()) == []
    _equal(served)


def test_a_batch_on_postgresql(
    tmp_path: Path, keeper: Keeper, postgres: PostgresServer, session: str
) -> None:
    with serving(tmp_path / "root", keeper.url, database=postgres.database()) as served:
        test_an_openai_batch_from_file_to_results(served, keeper, session)


def test_rows_of_an_earlier_version_lose_texts(
    served: Served, keeper: Keeper, session: str
) -> None:
    """An earlier version wrote the person into `batches`, the custom id into `batch_lines`."""
    key, name, person = served.key(usd_nano=USD), f"mark-{session}", f"person-{session}"
    headers = {"x-remit-session": session, "x-remit-subject": person,
               "anthropic-version": "2023-06-01"}  # fmt: skip
    _, raw, _ = served.ask(
        "POST", "/v1/messages/batches", {"requests": [_request(name)]}, token=key.key,
        headers=headers,
    )  # fmt: skip
    batch_id = json.loads(raw)["id"]

    def rewrite(tx: Transaction) -> None:
        tx.execute("UPDATE batch_lines SET custom_id = ? WHERE batch_id = ?", (name, batch_id))
        tx.execute(
            "UPDATE batches SET caller = replace(caller, ?, ?) WHERE batch_id = ?",
            ('"subject_id":""', f'"subject_id":"{person}"', batch_id),
        )

    served.ledger.transact(rewrite)
    _equal(served)
    ran = run_remit("ledger", "recover", "--root", served.root)
    assert ran.returncode == 0, ran.stderr
    _equal(served)
    served.ledger.erase(subject_id=person, reason="asked to", requested_by="test")
    assert {text: found for text in (name, person) if (found := holds(served, text))} == {}
    keeper.finish(batch_id)
    path = f"/v1/messages/batches/{batch_id}"
    assert served.ask("GET", f"{path}/results", token=key.key, headers=headers)[0] == 200
    assert holds(served, name) == []
    assert _money(served, key)[1] == 0
    _equal(served)


def test_a_deleted_batch_is_charged_its_results(
    served: Served, keeper: Keeper, session: str
) -> None:
    key = served.key(usd_nano=USD)
    client = anthropic_at(served, key.key, session)
    batch = client.messages.batches.create(requests=[_request("a"), _request("b")])
    keeper.finish(batch.id)
    for _ in range(2):
        with contextlib.suppress(anthropic.NotFoundError):
            client.messages.batches.delete(batch.id)
        spent, reserved = _money(served, key)
        assert reserved == 0
        assert spent / USD == pytest.approx(2 * ANTHROPIC_LINE, abs=4e-9)
    _equal(served)


def test_a_file_of_a_batch_that_is_deleted_frees_nothing(
    served: Served, keeper: Keeper, session: str
) -> None:
    key = served.key(usd_nano=USD)
    client = openai_at(served, key.key, session)
    batch = _create(client, _line("a"), _line("b"))
    _, reserved = _money(served, key)
    keeper.finish(batch.id)
    file_id = keeper.batches[batch.id]["output_file_id"]
    with contextlib.suppress(openai.NotFoundError):
        client.files.delete(file_id)
    client.batches.retrieve(batch.id)
    spent, held = _money(served, key)
    assert held == 0 or spent + held == reserved
    assert spent + held >= 2 * OPENAI_LINE * USD
    _equal(served)


def test_a_body_that_names_its_requests_twice_is_refused(served: Served, keeper: Keeper) -> None:
    client = openai_at(served)
    files = [client.files.create(file=("in", _line("a")), purpose="batch").id for _ in range(2)]
    first, second = json.dumps([_request("a")]), json.dumps([_request("b")])
    batches = len(keeper.batches)
    for path, name, values in (
        ("/v1/batches", "input_file_id", [f'"{file_id}"' for file_id in files]),
        ("/v1/messages/batches", "requests", [first, second]),
    ):
        body = f'{{"endpoint":"/v1/chat/completions","{name}":{values[0]},"{name}":{values[1]}}}'
        status, raw, _ = served.ask("POST", path, body.encode())
        assert (status, name.encode() in raw) == (400, True)
    assert len(keeper.batches) == batches


def test_missing_results_cost_the_bound(served: Served, keeper: Keeper, session: str) -> None:
    key = served.key(usd_nano=USD)
    client = openai_at(served, key.key, session)
    batch = _create(client, _line("a"))
    _, reserved = _money(served, key)
    keeper.batches[batch.id]["status"] = "completed"
    client.batches.retrieve(batch.id)
    assert _money(served, key) == (0, reserved)
    _age(served, batch.id, 2 * 86_400 + 60)
    client.batches.retrieve(batch.id)
    _settled_at_the_bound(served, key, batch.id, reserved, session)


def test_a_kill_between_creation_and_results_loses_nothing(tmp_path: Path) -> None:
    session, toml = new_session(), QUICK + "recover_every_s = 0.2\n"
    with keeping() as keeper:
        with serving(tmp_path / "root", keeper.url, toml=toml, checked=False) as served:
            key = served.key(usd_nano=USD)
            client = openai_at(served, key.key, session)
            batch = _create(client, *[_line(f"line-{number}") for number in range(25)])
            assert _money(served, key)[1] > 0
            served.process.kill()
            served.process.wait()
            served.stop = lambda: None  # type: ignore[method-assign]  # there is nothing to stop
        keeper.finish(batch.id)
        with serving(tmp_path / "root", keeper.url) as again:
            until(lambda: not again.ledger.select("SELECT 1 FROM batches"), 60)
            spent, reserved = _money(again, key)
            assert (spent / USD, reserved) == (pytest.approx(25 * OPENAI_LINE, abs=25e-9), 0)
            assert len(again.entries("EXCHANGE", session)) == 27
            _equal(again)
