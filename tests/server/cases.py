"""Many calls of one server at once, and what must hold of each of them."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.gateway.budget import audit_budgets
from remit.kernel.json_splice import remove_member, set_member, value_at
from remit.kernel.json_text import load
from remit.ledger import LedgerEntry, wire_body
from tests.server.running import Served, new_session, serving
from tests.support.raw_provider import CASE_HEADER, Answer, RawProvider, raw_provider, whole
from tests.support.wire_corpus import CORPUS, WireExchange

PATHS = {
    "openai.chat": "/v1/chat/completions",
    "openai.responses": "/v1/responses",
    "anthropic.messages": "/v1/messages",
}
MODELS = {
    "openai.chat": "gpt-4o-mini",
    "openai.responses": "gpt-4o-mini",
    "anthropic.messages": "claude-sonnet-4-5",
}
FIELDS = {"openai.chat": "messages", "openai.responses": "input", "anthropic.messages": "messages"}
_ENDPOINT = {path: name for name, path in PATHS.items()}
_USUAL: dict[tuple[str, bool], WireExchange] = {}
for _exchange in CORPUS:
    _USUAL.setdefault((_exchange.endpoint, _exchange.streamed), _exchange)
_TOML = """
[gateway]
max_retries = 0

[providers.plain]
kind = "openai"
base_url = "{url}/v1"
responses = false

[providers.gemini]
kind = "gemini"
base_url = "{url}/v1beta"
api_key = "key"

[providers.converse]
kind = "converse"
base_url = "{url}"
api_key = "key"
"""
_AT_ONCE = 6
__all__ = [
    "FIELDS", "MODELS", "PATHS", "Came", "Case", "fuzzing", "others_are_answered", "run",
    "without_remits",
]  # fmt: skip

_COMMENT = re.compile(rb": x-remit-exchange=[^\n]*\n\n")


@dataclass
class Case:
    """One call.

    Attributes:
        about: what is odd in it.
        answer: of the provider; ``None``: its usual one.
        expected: what a test wants to remember of it.
        path: where it is sent, for a dialect whose path names the model.
    """

    endpoint: str
    body: bytes
    about: str = ""
    answer: Answer | None = None
    expected: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    name: str = field(default_factory=new_session)
    path: str = ""


@dataclass
class Came:
    """What came of a case: at the client, at the provider, on record."""

    case: Case
    status: int
    body: bytes
    headers: dict[str, str]
    got: list[tuple[str, bytes]]
    broke: str = ""
    entry: LedgerEntry | None = None
    kinds: list[str] = field(default_factory=list)
    texts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        sent = self.case.body[:400]
        return f"{self.case.about}: {self.status} {self.broke} {self.body[:400]!r} for {sent!r}"


@contextmanager
def fuzzing(root: Path) -> Iterator[tuple[Served, RawProvider]]:
    """One server in front of one provider; at the end the ledger and the budgets are held."""
    with raw_provider() as provider:
        provider.answer = _usual
        with serving(root, provider.url, toml=_TOML.replace("{url}", provider.url)) as served:
            yield served, provider
            audit = audit_budgets(served.ledger)
            assert not audit.differences, audit


def _usual(connection: socket.socket, path: str, body: bytes) -> bool:
    """A plain answer in the dialect that was spoken; nothing else is there."""
    if path not in _ENDPOINT:
        connection.sendall(whole(b"{}", status="404 Not Found"))
        return True
    exchange = _USUAL[_ENDPOINT[path], load(body).get("stream") is True]
    connection.sendall(whole(exchange.answer, exchange.content_type))
    return True


def others_are_answered(served: Served) -> None:
    """Whatever one key's calls were like, another's plain calls pass right after."""
    key = served.key()
    for dialect, model in (("openai", "gpt-4o-mini"), ("anthropic", "claude-sonnet-4-5")):
        status, said, _ = served.call(dialect, "hello", model=model, token=key.key)
        assert status == 200, said


def run(
    served: Served,
    provider: RawProvider,
    cases: Sequence[Case],
    token: str = "",
    *,
    own_errors: bool = True,
) -> list[Came]:
    """Make the calls, each in a session of its own; holds what must be true of every one.

    A refusal is below 500 and has an error of the client's dialect; each call that went out left
    one pair of entries, whose text is that of the wire; none else left any.

    Args:
        own_errors: whether a 500 or 503 can only be Remit's own.
    """
    provider.answers.update({c.name: c.answer for c in cases if c.answer is not None})
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        parts = [cases[at::_AT_ONCE] for at in range(_AT_ONCE)]
        found = list(pool.map(lambda part: _some(served, provider, part, token), parts))
    came = [each for some in found for each in some]
    _read_records(served, came)
    wrong = [f"{problem}: {each}" for each in came for problem in _problems(each, own_errors)]
    assert not wrong, f"{len(wrong)} of {len(came)}:\n" + "\n".join(wrong[:8])
    return came


def _some(served: Served, provider: RawProvider, cases: Sequence[Case], token: str) -> list[Came]:
    came = []
    with closing(http.client.HTTPConnection(*served.address, timeout=60)) as connection:
        for case in cases:
            headers = {
                "authorization": f"Bearer {token or served.token}",
                "x-remit-session": case.name,
                "content-type": "application/json",
                CASE_HEADER: case.name,
                **case.headers,
            }
            path = case.path or PATHS[case.endpoint]
            connection.request("POST", path, case.body, headers)
            broke = ""
            try:
                reply = connection.getresponse()
                status, given = reply.status, reply.getheaders()
                body = reply.read()
            except http.client.IncompleteRead as error:
                body, broke = error.partial, "cut"
            except http.client.HTTPException as error:
                status, given, body, broke = 0, [], b"", type(error).__name__
            if broke:
                connection.close()
            came.append(
                Came(case, status, body, {n.lower(): v for n, v in given},
                     provider.got.pop(case.name, []), broke)
            )  # fmt: skip
            provider.answers.pop(case.name, None)
    return came


def _read_records(served: Served, came: list[Came]) -> None:
    for each in came:
        entries = list(served.ledger.query(session_id=each.case.name))
        each.kinds = [entry.event_type for entry in entries]
        exchanges = [entry for entry in entries if entry.event_type == "EXCHANGE"]
        if exchanges:
            each.entry = exchanges[-1]
            each.texts = served.ledger.exact(each.entry.id)


def _problems(came: Came, own_errors: bool) -> list[str]:
    """What is wrong in any case."""
    found = []
    if own_errors and came.status in (500, 503):
        found.append("a failure of ours")
    opened, closed = came.kinds.count("DISPATCH"), came.kinds.count("EXCHANGE")
    if not opened == closed == len(came.got):
        found.append(f"{opened} dispatches, {closed} exchanges, {len(came.got)} requests")
    if came.entry is None:
        if came.status < 400:
            found.append("answered without a record")
        elif not _is_refusal(came):
            found.append("a refusal without a form")
        return found
    metadata = came.entry.metadata
    if not came.got:
        return found
    sent, given = came.got[-1][1], came.case.body
    if wire_body(came.texts, metadata["cut"]) != sent:
        found.append("the record is not what was sent")
    if metadata["wire"] == came.case.endpoint and came.case.path:
        changed = {change["path"] for change in metadata.get("changed", [])}
        if changed <= {"/model"} and sent != given:  # The path names the model.
            found.append("bytes changed on their way out")
    elif metadata["wire"] == came.case.endpoint:
        for name in _fitted(came.entry):  # what another provider made was fitted for this one
            sent, given = (remove_member(body, (name,)) for body in (sent, given))
        before = undone(sent, came.entry)
        taken_out = any(
            "was" in change and value_at(sent, change["path"].split("/")[1:]) is None
            for change in metadata.get("changed", [])
        )
        # Where a member that was taken out had stood is not on record.
        same = load(before) == load(given) if taken_out else before == given
        if any(change["path"].endswith("/max_uses") for change in metadata.get("changed", [])):
            same = _without_uses(before) == _without_uses(given)
        if not same:
            found.append("bytes changed on their way out")
    return found


def _fitted(entry: LedgerEntry) -> set[str]:
    """Return the names of the lists of which elements were changed or removed."""
    paths = [change["path"].split("/")[1:] for change in entry.metadata.get("changed", [])]
    return {path[0] for path in paths if len(path) == 2 and path[1].isdigit()}


def _is_refusal(came: Came) -> bool:
    try:
        value = json.loads(came.body)
        error = value.get("error", value)  # Bedrock's has no member of that name.
    except (ValueError, KeyError, TypeError):
        return False
    return 400 <= came.status < 500 and bool(error["message"])


def _without_uses(body: bytes) -> Any:
    """A body without the limits of its tools, one of which Remit put in."""
    value = load(body)
    for tool in value["tools"]:
        tool.pop("max_uses", None)
    return value


def undone(sent: bytes, entry: LedgerEntry) -> bytes:
    """What the client sent, by what went out and what the record says was changed."""
    for change in reversed(entry.metadata.get("changed", [])):
        path = tuple(change["path"].split("/")[1:])
        if path[0] in _fitted(entry):
            continue
        if "was" in change:
            sent = set_member(sent, path, change["was"].encode())
        else:
            sent = remove_member(sent, path)
    return sent


def without_remits(came: bytes) -> bytes:
    """A stream without the one comment that Remit adds."""
    assert len(_COMMENT.findall(came)) == 1, came[-600:]
    return _COMMENT.sub(b"", came)
