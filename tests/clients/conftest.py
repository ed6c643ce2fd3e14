"""Both sides of every task, and what reached the provider from each.

Runs in the clients' own environments too, so nothing here imports Remit or its dependencies.
A task is a function that takes ``side`` and returns what the client got, as JSON; it runs directly
and then through Remit, and all three must agree: it passes, what the provider received is the same
byte for byte, and what the client got is the same.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.known import KNOWN

_GIVEN = json.loads(os.environ.get("REMIT_CLIENT_SIDES", "null"))
collect_ignore_glob = [] if _GIVEN else ["*"]  # only ``python -m tests.clients`` brings servers

BEDROCK_CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"
VERTEX_CLAUDE = "claude-sonnet-4-5@20250929"
_SIDES = ("direct", "remit")
_IDS = re.compile(
    r"(chatcmpl|cmpl|modr|call|toolu|msg|resp|rs|fc|ctc|file|batch|msgbatch|req|in|audio|gAAAAAB)"
    r"([-_]?)[0-9a-f]{8,}(==)?"
)
_UUIDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_USAGE = r'"stream_options":\s*\{\s*"include_usage":\s*true\s*\}'
_USAGE_TOO = r'"include_usage":\s*true'
_BOUNDARY = re.compile(r"boundary=([^;\s]+)")
_VERTEX = re.compile("^/v1beta1?(/projects/p/locations/l/publishers/google)?(?=/)")
_WRONG = 400
_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta")
_MEASURES = ("test_stream_time",)  # other people's tests of how fast the machine is
_RESULTS: dict[str, Any] = {}
_SEEN: dict[str, list[dict[str, Any]]] = {}


@dataclass(frozen=True)
class Side:
    """Where a client is pointed: the URL without ``/v1``, and the key."""

    name: str
    url: str
    key: str

    @property
    def openai(self) -> dict[str, str]:
        """What OpenAI's clients are given."""
        return {"base_url": f"{self.url}/v1", "api_key": self.key}

    @property
    def anthropic(self) -> dict[str, str]:
        """What Anthropic's clients are given."""
        return {"base_url": self.url, "api_key": self.key}

    def variables(self) -> dict[str, str]:
        """The same as environment variables, for clients that read these."""
        return {"OPENAI_API_KEY": self.key, "OPENAI_BASE_URL": f"{self.url}/v1",
                "OPENAI_API_BASE": f"{self.url}/v1", "ANTHROPIC_API_KEY": self.key,
                "ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_BASE": self.url}  # fmt: skip


def make_side(name: str) -> Side:
    """Of ``direct`` or ``remit``."""
    return Side(name, _GIVEN[name]["url"], _GIVEN[name]["key"])


def refusal(error: Any) -> dict[str, Any]:
    """What a client's error says; Remit may use its own words where the provider was not asked."""
    return {"refused": [type(error).__name__, error.status_code], "body": error.body}


def remits_own(task: Any) -> Any:
    """Marks a task whose calls Remit answers itself: the provider sees nothing of them."""
    task.remits_own = True
    return task


def not_bytes(task: Any) -> Any:
    """Marks a task whose requests hold what differs from run to run: only their order counts."""
    task.not_bytes = True
    return task


@pytest.fixture(params=_SIDES)
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Side:
    """One side after the other; the environment names it too."""
    given = make_side(request.param)
    for name, value in given.variables().items():
        monkeypatch.setenv(name, value)
    return given


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Directly first; what is known to fail through Remit must fail."""
    items[:] = [item for item in items if item.name not in _MEASURES]
    items.sort(key=lambda item: (item.path, _side(item) == "remit"))
    for item in items:
        name = f"{item.path.parent.name}/{item.path.stem}::{item.nodeid.partition('::')[2]}"
        if name in KNOWN:
            item.add_marker(pytest.mark.xfail(reason=KNOWN[name], strict=True))


def _side(item: pytest.Item) -> str:
    return "remit" if "remit" in item.nodeid.lower().partition("::")[2] else "direct"


def _task(item: pytest.Item) -> str:
    return re.sub("remit", "direct", item.nodeid, flags=re.IGNORECASE).lower()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Keep what reached the provider and what came back; compare Remit's with the direct one."""
    before, got = _count(), None
    own = getattr(pyfuncitem.function, "remits_own", False)
    loose = getattr(pyfuncitem.function, "not_bytes", False)
    try:
        if "side" in pyfuncitem.fixturenames:
            got = _call(pyfuncitem)
            result = True
            # The task has run: pytest's own call finds nothing left to do.
            pyfuncitem.obj = lambda **_: None
            yield
        else:
            result = yield
    finally:
        seen = [_told(each) for each in _since(before)]
        for each in seen if loose else ():
            each["body"] = ""
        if _side(pyfuncitem) == "direct":
            _SEEN[_task(pyfuncitem)] = seen
            _RESULTS[_task(pyfuncitem)] = got
    if _side(pyfuncitem) == "remit":
        if not own:
            _compare(_SEEN.get(_task(pyfuncitem)), seen)
        if got is not None:
            direct = _RESULTS.get(_task(pyfuncitem))
            if isinstance(got, dict) and "refused" in got and not _failed(seen):
                got, direct = got["refused"], direct["refused"]
            if difference := _difference(_plain(direct), _plain(got)):
                pytest.fail(f"What the client got differs: {difference}", pytrace=False)
    return result


def _call(item: pytest.Function) -> Any:
    wanted = inspect.signature(item.function).parameters
    given = {name: item.funcargs[name] for name in wanted if name in item.funcargs}
    got = item.function(**given)
    return asyncio.run(got) if inspect.isawaitable(got) else got


def _plain(value: Any) -> Any:
    """JSON without the ids that the provider counts up."""
    text = json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
    return json.loads(_scrub(text))


def _scrub(text: str) -> str:
    return _IDS.sub(r"\1\2N", _UUIDS.sub("UUID", text))  # a UUID may hold what looks like an id


def _ask(path: str) -> Any:
    with urllib.request.urlopen(_GIVEN["direct"]["url"] + path, timeout=30) as answer:
        return json.load(answer)


def _count() -> int:
    return int(_ask("/count"))


def _since(count: int) -> list[dict[str, Any]]:
    found = _ask(f"/seen?after={count}")
    if directory := os.environ.get("REMIT_CLIENT_LOG"):
        with Path(directory, "seen.jsonl").open("a") as file:
            file.writelines(json.dumps(each) + "\n" for each in found)
    return list(found)


def _told(seen: dict[str, Any]) -> dict[str, Any]:
    """A request as it is compared."""
    headers = dict(seen["headers"])
    text = base64.b64decode(seen["body"]).decode("utf-8", "surrogateescape")
    if found := _BOUNDARY.search(headers.get("content-type", "")):
        text = text.replace(found[1].strip('"'), "BOUNDARY")
    if seen["path"].startswith(("/model/", "/v1/projects/")) and "/converse" not in seen["path"]:
        # Remit moves the cloud's version out of the body and back, which changes the order.
        text = json.dumps(json.loads(text), sort_keys=True)
        # The clouds read both from the body; Vertex AI alone reads betas from the header.
        headers.pop("anthropic-version", None)
        if seen["path"].startswith("/model/"):
            headers.pop("anthropic-beta", None)
    told = {name: headers[name] for name in _HEADERS if name in headers}
    query = seen["query"].replace("beta=true", "")
    # Gemini's version and Vertex AI's project belong to the base URL of Remit's provider.
    seen["path"] = _VERTEX.sub("/v1", seen["path"])
    return {"request": _scrub(f"{seen['method']} {seen['path']}?{query}"), "headers": told,
            "body": _scrub(text), "status": seen["status"]}  # fmt: skip


def _failed(seen: list[dict[str, Any]]) -> bool:
    return bool(seen) and seen[-1]["status"] >= _WRONG


def _compare(direct: list[dict[str, Any]] | None, remit: list[dict[str, Any]]) -> None:
    if direct is None:
        return
    for one, other in zip(remit, direct, strict=False):
        if one["body"] != other["body"] and '"include_usage":' not in other["body"]:
            # The one addition that is Remit's to make.
            for added in (_USAGE, _USAGE_TOO):
                one["body"] = re.sub(rf",\s*{added}|{added}\s*,", "", one["body"])
    # Clients that ask at the same time are answered in any order. What failed is asked again; what
    # the provider would refuse need not reach it; what it keeps is read when Remit wants to know.
    key = json.dumps
    direct, remit = ([one for one in side if not one["request"].startswith("GET ")]
                     for side in (direct, remit))  # fmt: skip
    ours = [one for at, one in enumerate(remit) if one["status"] < _WRONG or one not in remit[:at]]
    reached = [
        one for one in direct
        if one in ours or (one["status"] < _WRONG and one["request"].startswith("POST "))
    ]  # fmt: skip
    if difference := _difference(sorted(reached, key=key), sorted(ours, key=key)):
        pytest.fail(f"What reached the provider differs: {difference}", pytrace=False)


def _difference(direct: Any, remit: Any, where: str = "") -> str:
    """The first place where two values differ, in words; empty where they are the same."""
    if isinstance(direct, dict) and isinstance(remit, dict):
        for name in sorted({*direct, *remit}):
            if (name in direct) != (name in remit):
                which = "directly" if name in direct else "through Remit"
                return f"{where}.{name}: only {which}: {direct.get(name, remit.get(name))!r}"
            if found := _difference(direct[name], remit[name], f"{where}.{name}"):
                return found
        return ""
    if isinstance(direct, list) and isinstance(remit, list):
        for at, (one, other) in enumerate(zip(direct, remit, strict=False)):
            if found := _difference(one, other, f"{where}[{at}]"):
                return found
        if len(direct) != len(remit):
            return f"{where}: {len(direct)} directly, {len(remit)} through Remit"
        return ""
    if direct == remit:
        return ""
    if isinstance(direct, str) and isinstance(remit, str):
        pairs = enumerate(zip(direct, remit, strict=False))
        same = next((at for at, (one, other) in pairs if one != other), 0)
        direct, remit = (text[max(0, same - 60) : same + 200] for text in (direct, remit))
    return f"{where}: {direct!r} directly, {remit!r} through Remit"
