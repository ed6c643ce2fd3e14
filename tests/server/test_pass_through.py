"""Requests that name or call no model: allowed by the key, recorded, owned, priced or refused."""

from __future__ import annotations

import hashlib
import http.client
import json
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from remit.providers.wire import PASSED_PATHS, PassedPath, find_passed
from tests.server.conftest import QUICK
from tests.server.running import FORM, Served, form, serving
from tests.support.object_store import ObjectStore
from tests.support.soak import is_soak, sample

BEFORE = "store"
_SERVED = 258
"""The number of requests that are passed on; it may not fall."""

_ALL = ("*",)


@pytest.fixture(scope="module")
def key(served: Served) -> str:
    return served.key(pass_through=_ALL).key


@pytest.fixture(scope="module")
def other(served: Served) -> str:
    return served.key(pass_through=_ALL).key


def _ask(
    served: Served, token: str, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None and "content-type" not in given:
        given["content-type"] = "application/json"
    status, raw, _ = served.ask(method, path, body, token=token, headers=given)
    return status, json.loads(raw) if raw[:1] in b"{[" else raw


def _name_of(row: PassedPath) -> str:
    return f"{row.dialect} {row.name}"


def _dialect(row: PassedPath) -> dict[str, str]:
    return {"anthropic-version": "2023-06-01"} if row.dialect == "anthropic" else {}


def _last_exchange(served: Served) -> Any:
    return next(served.ledger.query(event_type="EXCHANGE", order="desc", limit=1))


@pytest.mark.soak
@pytest.mark.parametrize("row", sample(PASSED_PATHS, 40), ids=_name_of)
def test_every_row_reaches_the_provider_as_it_was_sent(
    row: PassedPath, served: Served, store: ObjectStore, key: str, other: str
) -> None:
    headers = _dialect(row)
    prefix = "/v1" if row.dialect == "openai" else "/anthropic/v1"
    ids: list[str] = []
    if "{id}" in row.template:
        ids = [_owned(row, served, store, key), *["part-1", "part-2", "part-3"]]
    path = row.template
    for one in ids:
        path = path.replace("{id}", one, 1)
    body = b'{ "a" :1.50}' if row.method == "POST" else None
    before = len(store.asked)
    status, raw, _ = served.ask(row.method, prefix + path, body, token=key, headers=headers)
    assert status in (200, 404), raw  # 404 is the provider's: it was asked.
    asked = store.asked[before:]
    assert [one.path.partition("?")[0] for one in asked] == [f"/v1{path}"]
    assert (asked[0].method, asked[0].body) == (row.method, body or b"")
    if ids:  # Another key finds nothing, and the provider is not asked.
        status, _, _ = served.ask(row.method, prefix + path, body, token=other, headers=headers)
        assert status == 404
        assert len(store.asked) == before + 1


def _owned(row: PassedPath, served: Served, store: ObjectStore, key: str) -> str:
    """Have the key own an object of the row's collection; return its id."""
    makers = [one for one in PASSED_PATHS if one.dialect == row.dialect
              and row.kind in {kind for kind, _ in one.makes}]  # fmt: skip
    maker = min(makers, key=lambda one: len(one.template))
    path, prefix = maker.template, "/v1" if row.dialect == "openai" else "/anthropic/v1"
    if "{id}" in path:
        path = path.replace("{id}", _owned(maker, served, store, key))
    status, made = _ask(served, key, "POST", prefix + path, b"{}", **_dialect(row))
    assert status == 200, made
    return str(made["id"])


def test_a_change_is_a_pair_until_its_deletion(
    served: Served, store: ObjectStore, key: str
) -> None:
    text = b'{"name" : "a secret name", "novel": 1.50}'
    status, made = _ask(served, key, "POST", "/v1/vector_stores?x=1", text)
    assert status == 200
    entry = _last_exchange(served)
    assert store.asked[-1].body == text
    assert entry.metadata["wire"] == "openai.vector_stores"
    assert entry.metadata["request_line"] == "POST /vector_stores?x=1"
    assert served.ledger.exact(entry.id)["parameters"] == text
    assert json.loads(served.ledger.exact(entry.id)["answer"])["id"] == made["id"]
    assert entry.metadata["cost_certainty"] == "unpriced"
    assert "cost_usd" not in entry.metadata
    count, path = served.ledger.count(), f"/v1/vector_stores/{made['id']}"
    assert _ask(served, key, "GET", path)[0] == 200
    assert served.ledger.count() == count  # A read is not recorded.
    status, gone = _ask(served, key, "DELETE", path)
    assert (status, gone["deleted"]) == (200, True)
    assert "secret" not in str(served.ledger.read(entry.id).metadata)
    assert _ask(served, key, "GET", path)[0] == 404
    assert _last_exchange(served).metadata["cost_certainty"] == "measured"


def test_a_key_only_reads_what_its_patterns_leave_out(served: Served, store: ObjectStore) -> None:
    plain = served.key().key
    before = len(store.asked)
    for method, path in (("POST", "/v1/vector_stores"), ("POST", "/v1/uploads"),
                         ("GET", "/anthropic/v1/environments/e_1/work/poll"),
                         ("DELETE", "/v1/skills/skill_1")):  # fmt: skip
        status, refused = _ask(served, plain, method, path, b"{}" if method == "POST" else None)
        assert (status, refused["error"].get("code", "pass_through_not_allowed")) == (
            403, "pass_through_not_allowed",
        )  # fmt: skip
        assert "remit key set" in refused["error"]["message"]
    assert len(store.asked) == before
    assert _ask(served, plain, "GET", "/v1/vector_stores") == (
        200, {"data": [], "has_more": False, "object": "list", "first_id": None, "last_id": None},
    )  # fmt: skip
    for pattern, path, status in (
        ("/vector_stores*", "/vector_stores", 200), ("POST /vector_stores", "/vector_stores", 200),
        ("DELETE /vector_stores*", "/vector_stores", 403), ("/vector_stores", "/uploads", 403),
        ("*", "/uploads", 200), ("*/search", "/vector_stores", 403),
    ):  # fmt: skip
        token = served.key(pass_through=(pattern,)).key
        assert _ask(served, token, "POST", f"/v1{path}", b"{}")[0] == status, pattern


def test_a_limit_in_usd_refuses_what_has_no_price(served: Served, store: ObjectStore) -> None:
    capped = served.key(pass_through=_ALL, usd_nano=10**9)
    before = len(store.asked)
    status, refused = _ask(served, capped.key, "POST", "/v1/vector_stores", b"{}")
    assert (status, refused["error"]["code"]) == (402, "unpriced")
    assert "--pass-through-unpriced 'POST /vector_stores'" in refused["error"]["message"]
    assert len(store.asked) == before
    assert next(served.ledger.query(event_type="PROMPT_REJECTED", order="desc", limit=1))
    assert _ask(served, capped.key, "POST", "/v1/uploads", b"{}")[0] == 200  # known to be free
    listed = served.key(pass_through=_ALL, unpriced=("/vector_stores",), usd_nano=10**9)
    status, made = _ask(served, listed.key, "POST", "/v1/vector_stores", b"{}")
    assert status == 200
    assert _last_exchange(served).metadata["cost_certainty"] == "unpriced"
    path = f"/v1/vector_stores/{made['id']}"
    assert _ask(served, listed.key, "POST", f"{path}/search", b"{}")[0] == 402
    for method in ("GET", "DELETE"):
        assert _ask(served, listed.key, method, path)[0] == 200
    shown, _, _ = served.ask("GET", "/v1/key", token=listed.key)
    assert shown == 200


def test_admin_paths_and_unknown_ones_are_refused(
    served: Served, store: ObjectStore, key: str
) -> None:
    before = len(store.asked)
    for path in (
        "/v1/organization/admin_api_keys", "/v1/organizations/users", "/v1/organization/costs",
        "/v1/realtime/client_secrets", "/v1/realtime/sessions", "/v1/live/sessions",
        "/v1/chatkit/sessions", "/anthropic/v1/tunnels/t_1/reveal_token", "/organization/projects",
        "/openai/v1/organization/invites", "/v1/fine_tuning/checkpoints/c/permissions",
        "/v1/webhook_endpoints",
    ):  # fmt: skip
        for method in ("GET", "POST", "DELETE"):
            status, refused = _ask(served, key, method, path, b"{}" if method == "POST" else None)
            assert (status, path in refused["error"]["message"]) == (403, True), (method, path)
    status, refused = _ask(served, key, "GET", "/v1/novelties/n_1")
    assert status == 404
    for said in ("GET /v1/novelties/n_1", "/chat/completions", "/vector_stores", "/messages"):
        assert said in refused["error"]["message"]
    status, refused = _ask(served, key, "PATCH", "/v1/vector_stores", b"{}")
    assert (status, "GET, POST" in refused["error"]["message"]) == (405, True)
    assert len(store.asked) == before


def test_no_id_leads_to_another_path_or_to_an_object_of_another_key_or_dialect(
    served: Served, store: ObjectStore, key: str, other: str
) -> None:
    own = _ask(served, key, "POST", "/v1/vector_stores", {})[1]["id"]
    foreign = _ask(served, other, "POST", "/v1/vector_stores", {})[1]["id"]
    agent = _ask(served, key, "POST", "/v1/agents", {}, anthropic_version="2023-06-01")[1]["id"]
    before = len(store.asked)
    for path in (
        "/v1/vector_stores/..", "/v1/vector_stores/{}/files/..",
        "/v1/vector_stores/{}/files/%2e%2e", "/v1/vector_stores/{}/files/..%2f..%2forganization",
        "/v1/vector_stores/{}/files/a%2Fb", "/v1/vector_stores/{}/files/a%00",
        "/v1/vector_stores//files", "/v1/vector_stores/{}/files/.",
    ):  # fmt: skip
        for method in ("GET", "DELETE"):
            assert _ask(served, key, method, path.format(own))[0] in (404, 405), path
    for method in ("GET", "POST", "DELETE"):
        path = f"/v1/vector_stores/{own}/files/{foreign}"
        status, refused = _ask(served, key, method, path, {} if method == "POST" else None)
        assert (status, foreign in refused["error"]["message"]) == (404, True), method
    assert _ask(served, key, "GET", f"/openai/v1/agents/{agent}")[0] == 404
    assert len(store.asked) == before
    assert _ask(served, key, "GET", f"/anthropic/v1/agents/{agent}")[0] == 200


@pytest.mark.parametrize(
    "body",
    ['{{"file_ids":["{0}"]}}', '{{"tools":[{{"deep":{{"any_name":"{0}"}}}}]}}',
     '{{"file_ids":["\\u0066{1}"]}}', '{{"x":"{0}","x":"mine"}}', '{{"x":"mine","x":"{0}"}}',
     '{{"file_ids":[" {0}"]}}', '{{"file_ids":"{0}\\n"}}', '{{"file_ids":"file-mine,{0}"}}',
     '{{"include":"file-mine;{0}"}}', '{{"weights":{{"{0}":1}}}}',
     '{{"url":"/v1/files/{0}/content"}}', '{{"filter":"id={0}&x=1"}}'],
)  # fmt: skip
def test_no_body_names_the_object_of_another_key(
    body: str, served: Served, store: ObjectStore, key: str, other: str
) -> None:
    _, made = _ask(served, other, "POST", "/v1/uploads", b"{}")
    _, done = _ask(served, other, "POST", f"/v1/uploads/{made['id']}/complete", b"{}")
    name = done["file"]["id"]
    before = len(store.asked)
    text = body.format(name, name[1:]).encode()
    assert _ask(served, key, "POST", "/v1/vector_stores", text)[0] in (400, 404)
    for query in ("after={}", "{}", "{}=1", "a=1;after={}", "ids=a,{}", "after=+{}", "x=%20{}%2C"):
        assert _ask(served, key, "GET", f"/v1/vector_stores?{query.format(name)}")[0] == 404
    assert len(store.asked) == before
    if "\\u" not in body and '"x"' not in body:
        assert _ask(served, other, "POST", "/v1/vector_stores", text)[0] == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"model": "gpt-4o-mini", "input": "x", "tools": [
            {"type": "file_search", "vector_store_ids": ["{}"]}]}),
        ("/v1/responses", {"model": "gpt-4o-mini", "input": "x", "tools": [
            {"type": "file_search", "vector_store_ids": [" {}\n"]}]}),
        ("/v1/responses", {"model": "gpt-4o-mini", "input": "x", "tools": [
            {"type": "file_search", "vector_store_ids": "vs_mine,{}"}]}),
        ("/v1/messages", {"model": "claude-sonnet-4-5", "max_tokens": 5,
                          "messages": [{"role": "user", "content": "x"}], "container": {
                              "skills": [{"type": "custom", "skill_id": "{}"}]}}),
    ],
)  # fmt: skip
def test_no_model_call_names_the_object_of_another_key(
    path: str, body: dict[str, Any], served: Served, store: ObjectStore, key: str, other: str
) -> None:
    collection = "/v1/skills" if "messages" in path else "/v1/vector_stores"
    _, made = _ask(served, other, "POST", collection, b"{}")
    text = json.dumps(body).replace("{}", made["id"]).encode()
    before = len(store.asked)
    status, refused = _ask(served, key, "POST", path, text)
    assert (status, made["id"] in refused["error"]["message"]) == (404, True)
    assert len(store.asked) == before
    _ask(served, other, "POST", path, text)
    assert len(store.asked) > before


_PARTS = (
    "v1", "vector_stores", "files", "threads", "runs", "skills", "uploads", "parts", "..", ".",
    "%2e%2e", "%2F", "{}", "", "x", "agents", "sessions", "organization", "a%00b", "%ff",
    "openai", "anthropic", "%", "content", "search", "a" * 600,
)  # fmt: skip
_BODIES = (
    None, b"", b"{}", b"[]", b"{", b"null", b'{"file_ids":[1,{"a":"%s"}]}', b"\xff\xfe",
    b'{"a":' * 500, b'{"model":{"id":5}}', b"--B\r\n", b"--B--", b'{"stream":true}',
)  # fmt: skip
_TYPES = (
    "", "application/json", "multipart/form-data; boundary=B", "multipart/form-data",
    "text/plain", "multipart/form-data; boundary=" + "B" * 300,
)  # fmt: skip


@pytest.mark.soak
def test_no_request_is_a_fault_of_remit(served: Served, store: ObjectStore, key: str) -> None:
    _, made = _ask(served, key, "POST", "/v1/vector_stores", b"{}")
    for seed in sample(range(5_000), 300):
        source = random.Random(seed)
        parts = [source.choice(_PARTS) for _ in range(source.randrange(1, 6))]
        path = "/" + "/".join(parts).replace("{}", made["id"])
        if source.random() < 0.6:
            path = "/v1/vector_stores" + (path if source.random() < 0.5 else "")
        query = source.choice(
            ("", "?a=b&a=c", "?%ff=%00", "?limit=-1", "?after=x", "?" + "a" * 500)
        )
        headers = {"content-type": source.choice(_TYPES)}
        if source.random() < 0.3:
            headers["content-encoding"] = source.choice(("gzip", "br", "odd"))
        if source.random() < 0.5:
            headers["anthropic-version"] = "2023-06-01"
        method = source.choice(("GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"))
        body = source.choice(_BODIES)
        status, raw, _ = served.ask(method, path + query, body, token=key, headers=headers)
        assert status < 500, (seed, method, path, raw)
    assert "Traceback" not in served.errors.read_text()


@pytest.mark.parametrize("by_token", [False, True])
def test_a_list_shows_the_keys_own_objects(
    by_token: bool, served: Served, store: ObjectStore, key: str, other: str
) -> None:
    collection = "/v1/vaults" if by_token else "/v1/evals"
    own = []
    for number in range(6):
        _, made = _ask(served, key if number % 2 else other, "POST", collection, b"{}")
        own += [made["id"]] if number % 2 else []
    store.by_token = by_token
    try:
        found: list[str] = []
        query = "limit=2"
        for _ in range(10):
            status, page = _ask(served, key, "GET", f"{collection}?{query}")
            assert status == 200
            found += [one["id"] for one in page["data"]]
            if by_token and page["next_page"]:
                query = f"limit=2&page={page['next_page']}"
            elif not by_token and page["has_more"]:
                query = f"limit=2&after={page['last_id']}"
            else:
                break
        assert [name for name in found if name in own] == own
        assert len(found) == len(set(found))
        _, theirs = _ask(served, other, "GET", f"{collection}?limit=100")
        assert not {one["id"] for one in theirs["data"]} & set(own)
    finally:
        store.by_token = False


@pytest.mark.soak
@pytest.mark.parametrize("chunked", [False, True])
def test_a_long_form_in_little_memory(chunked: bool, store: ObjectStore, tmp_path: Path) -> None:
    size = 1 << 30 if is_soak() else 128 << 20
    toml = f"{QUICK}\n[server]\nmax_upload_bytes = {2 << 30}\nmemory_bytes = {64 << 20}\n"
    with serving(tmp_path / "root", store.url, toml=toml) as served:
        token = served.key(pass_through=_ALL).key
        _, made = _ask(served, token, "POST", "/v1/uploads", b"{}")
        before = served.rss_bytes("VmHWM")
        piece, digest = b"0123456789abcdef" * 4096, hashlib.sha256()
        head, end = form(data=("a.bin", b"")).split(b"\r\n--BOUND--")
        end = b"\r\n--BOUND--" + end
        count = size // len(piece)

        def sent() -> Iterator[bytes]:
            for part in (head, *[piece] * count, end):
                digest.update(part)
                yield part

        length = len(head) + count * len(piece) + len(end)
        headers = {"authorization": f"Bearer {token}", **FORM}
        if not chunked:
            headers["content-length"] = str(length)
        with closing(http.client.HTTPConnection(*served.address, timeout=300)) as connection:
            connection.request("POST", f"/v1/uploads/{made['id']}/parts", sent(), headers,
                               encode_chunked=chunked)  # fmt: skip
            reply = connection.getresponse()
            assert reply.status == 200, reply.read()
        asked = store.asked[-1]
        assert (asked.size, asked.sha256) == (length, digest.hexdigest())
        assert ("content-length" in {name.lower() for name in asked.headers}) is not chunked
        entry = _last_exchange(served)
        file = json.loads(served.ledger.exact(entry.id)["parameters"])["data"]
        assert file["bytes"] == count * len(piece)
        assert served.rss_bytes("VmHWM") - before < 48 << 20


def test_the_table_does_not_shrink_and_is_found_by_words_first() -> None:
    assert len(PASSED_PATHS) >= _SERVED
    assert find_passed("openai", "/threads/runs")[0].keys() == {"POST"}
    assert find_passed("openai", "/agents/sessions/s_1/items")[1] == ("s_1",)
    assert find_passed("openai", "/memory_stores")[0] == {}


_FORM = {"content_type": FORM["content-type"]}


@pytest.mark.parametrize("padding", [0, 3 << 20])
def test_no_form_names_the_object_of_another_key(
    padding: int, served: Served, store: ObjectStore, key: str, other: str
) -> None:
    _, theirs = _ask(served, other, "POST", "/v1/skills", b"{}")
    _, mine = _ask(served, key, "POST", "/v1/containers", b"{}")
    body = form(file=("a.bin", b"x" * padding), file_id=theirs["id"])
    before = len(store.asked)
    status, _ = _ask(served, key, "POST", f"/v1/containers/{mine['id']}/files", body, **_FORM)
    assert status == 404
    assert len(store.asked) == before  # The provider never had it whole.
    if padding:
        entry = _last_exchange(served)
        assert entry.metadata["error_code"] == "INVALID_REQUEST"


def test_a_stream_passes_as_it_is_and_its_thread_is_the_callers(
    served: Served, store: ObjectStore, key: str, other: str
) -> None:
    status, raw = _ask(served, key, "POST", "/v1/threads/runs", {"stream": True})
    assert status == 200
    assert raw.endswith(b"data: [DONE]\n\n")
    thread = json.loads(raw.splitlines()[0].removeprefix(b"data:"))["thread_id"]
    assert _last_exchange(served).metadata["answer"].encode() == raw
    assert _ask(served, key, "GET", f"/v1/threads/{thread}")[0] == 200
    assert _ask(served, other, "GET", f"/v1/threads/{thread}")[0] == 404


@pytest.mark.parametrize("column", ["owner", "kind", "object_id"])
def test_a_forged_row_of_an_owner_is_found(column: str, served: Served, key: str) -> None:
    _, made = _ask(served, key, "POST", "/v1/vector_stores", b"{}")
    change = f"UPDATE provider_objects SET {column} = {column} || 'x' WHERE object_id = ?"
    served.ledger.transact(lambda tx: tx.execute_many(change, [(made["id"],)]))
    try:
        (problem,) = served.ledger.verify().problems
        assert f"{column} of {made['id']}" in str(problem)
    finally:
        back = f"UPDATE provider_objects SET {column} = rtrim({column}, 'x') WHERE entry_id = ?"
        entry = _last_exchange(served).id
        served.ledger.transact(lambda tx: tx.execute_many(back, [(entry,)]))


def _post(served: Served, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    given = {"content-type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    status, raw, _ = served.ask("POST", path, body, headers=given)
    return status, json.loads(raw)


@pytest.mark.parametrize("text", ['{"prompt" : "a cat"}', '{"model":null,"prompt" : "a cat"}'])
def test_an_image_gets_a_recorded_model(text: str, served: Served, store: ObjectStore) -> None:
    _post(served, "/v1/images/generations", text.encode())
    sent = json.loads(store.asked[-1].body)
    assert sent == {"model": "gpt-image-2.5-flare", "prompt": "a cat"}
    entry = next(served.ledger.query(event_type="EXCHANGE", order="desc", limit=1))
    (changed,) = entry.metadata["changed"]
    assert (changed["path"], changed["reason"]) == ("/model", "the client named no model")
    assert entry.metadata["model_id"] == "gpt-image-2.5-flare"


@pytest.mark.parametrize("before", [b"", b"a preamble\r\n"])
@pytest.mark.parametrize("path", ["/v1/images/edits", "/v1/images/variations"])
def test_a_form_without_a_model_gets_one_more_part(
    path: str, before: bytes, served: Served, store: ObjectStore
) -> None:
    form = (b'--B\r\nContent-Disposition: form-data; name="prompt"\r\n\r\na cat\r\n'
            b'--B\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n\x89\r\n'
            b"--B--\r\n")  # fmt: skip
    _post(served, path, before + form, content_type="multipart/form-data; boundary=B")
    part = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\ngpt-image-2.5-flare\r\n'
    assert store.asked[-1].body == part + form


def test_responses_and_moderations_get_a_default(served: Served, store: ObjectStore) -> None:
    _post(served, "/v1/responses", {"input": "hello"})
    _post(served, "/v1/responses", {"input": "hello", "model": "gpt-4o-mini"})
    named, unnamed = served.ledger.query(event_type="EXCHANGE", order="desc", limit=2)
    assert named.metadata["model_id"] == "gpt-4o-mini"
    assert unnamed.metadata["model_id"]
    assert "the client named no model" in str(unnamed.metadata["changed"])
    assert _post(served, "/v1/responses/input_tokens", {"input": "hello"})[0] == 200
    _post(served, "/v1/moderations", b'{"input":"x"}')  # the provider's own
    assert store.asked[-1].body == b'{"input":"x"}'
