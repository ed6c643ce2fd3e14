"""The interfaces as a run on a seeded root shows them: answers, entries, headers, metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from remit.ledger import LedgerClient
from tests.server.running import Served, serving
from tests.snapshots.declared import as_json, commands
from tests.support.agents import by_kind
from tests.support.commands import run_remit
from tests.support.roots import new_root
from tests.support.upstream import upstream
from tests.support.wire import anthropic_answer, serve, tool_use

__all__ = ["observed"]

TOML = """
[gateway]
max_retries = 0
[gateway.fallbacks]
"gpt-down" = ["gpt-4o-mini"]
"""
REQUESTS = Path(__file__).with_name("requests.json")
"""What is asked of a server: request, case, whose key, body."""
COMMANDS = Path(__file__).with_name("commands.txt")
"""Command lines, run in this order. ``{SES}`` is the id of that kind that was shown last."""
_MASKS = (
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00)?", "<time>"),
    (r"\b20\d\d-\d\d-\d\d\b", "<date>"),
    (r"\bsk-remit-[A-Za-z0-9_-]{4,}", "sk-remit-<secret>"),
    (r"\b(SES|LED|ORD|KEY|DEC|WO|THT|FBK|PRP|APR)-[0-9A-Za-z-]{6,}", r"<\1>"),
    (r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b", "<uuid>"),
    (r"\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{30,}", "+<verifier key>"),
    (r"\b[0-9a-f]{8,}\b", "<hex>"),
    (r"[A-Za-z0-9+/]{40,}=*", "<base64>"),
    (r"(127\.0\.0\.1|localhost):\d+", r"\1:<port>"),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "<time>"),
    (r"(_ms\W+)[0-9.]+", r"\1<ms>"),
)
_ID = re.compile(r"\b([A-Z]{2,5})-[0-9A-Za-z-]{6,}\b")
_VARYING = re.compile(r"(_ms|_s|_bytes|_micros|_share|age|seconds|minute|pid|bytes|size|length)$")


def observed(place: Path) -> dict[str, str]:
    """Return the snapshots of what a run shows, by file name; its root is made in ``place``."""
    root = new_root(place / "root", TOML)
    with upstream() as provider, serving(root, provider.url) as served:
        headers = {name: _mask(found, root) for name, found in _headers(served)}
        metrics = _metrics(served)
    examples = dict(_run_commands(root))  # a running server would take their changes up sometime
    written: dict[str, set[str]] = {}
    with LedgerClient(root / "ledger.db") as ledger:
        for entry in ledger.query():
            written.setdefault(entry.event_type, set()).update(entry.metadata)
    return {
        "headers.json": as_json(headers),
        "metrics.json": as_json(metrics),
        "written.json": as_json({event: sorted(keys) for event, keys in written.items()}),
        **examples,
    }


def _run_commands(root: Path) -> Iterator[tuple[str, str]]:
    """Run the commands, and yield a file for each that has ``--json``; last, what was not run."""
    known = {
        " ".join(path[1:]): {name for one in command.params for name in one.opts}
        for path, command in commands()
    }
    left = {name for name, options in known.items() if "--json" in options}
    files: dict[str, list[Any]] = {}
    ids: dict[str, str] = {}
    failed: list[str] = []
    script = by_kind(
        anthropic_answer("Let me see.", tool_use("list_sessions", {})),
        anthropic_answer("There is one session."),
    )
    with serve(script) as model:
        environment = {
            "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-secret",
            **dict.fromkeys(("LOGNAME", "USER"), "ada"),
        }  # fmt: skip
        for line in COMMANDS.read_text(encoding="utf-8").splitlines():
            words = [_filled(word, ids, root) for word in line.split()]
            name = max((" ".join(words[:n]) for n in (1, 2, 3)), key=lambda n: (n in known, len(n)))
            options = ["--root", str(root)] if "--root" in known[name] else []
            options += ["--json"] if "--json" in known[name] else []
            ran = run_remit(*words, *options, cwd=root.parent, environment=environment)
            if ran.returncode not in (0, 1) or ("--json" in options and not ran.stdout):
                failed.append(f"{line}: {ran.stderr}")
                continue
            ids.update((found[1], found[0]) for found in _ID.finditer(ran.stdout))
            if "--json" in options:
                left.discard(name)
                example = {"exit": ran.returncode, **_mask(_parsed(ran.stdout), root)}
                files.setdefault(name, []).append(example)
    assert not failed, "\n".join(failed)
    for name, examples in files.items():
        yield f"json/{name.replace(' ', '-')}.json", "".join(map(as_json, examples))
    yield "json/no-example.txt", "".join(f"{name}\n" for name in sorted(left))


def _parsed(text: str) -> dict[str, Any]:
    try:
        return {"document": json.loads(text)}
    except ValueError:
        return {"lines": [json.loads(line) for line in text.splitlines()]}


def _filled(word: str, ids: dict[str, str], root: Path) -> str:
    """Put ids, and spaces for ``~``, into a word of a command line."""
    known = {**ids, "root": str(root)}
    return re.sub(r"\{(\w+)\}", lambda found: known.get(found[1], "?"), word.replace("~", " "))


def _mask(value: Any, root: Path, key: str = "") -> Any:
    """Replace what differs from run to run, and keep of a list one item of each shape."""
    if isinstance(value, dict):
        return {_mask(name, root): _mask(each, root, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        items = sorted((_mask(each, root) for each in value), key=as_json)
        return list({_shape(each): each for each in reversed(items)}.values())[::-1]
    if isinstance(value, str):
        value = value.replace(str(root.parent), "<place>")
        for pattern, mask in _MASKS:
            value = re.sub(pattern, mask, value)
    measured = isinstance(value, float) and len(repr(value)) > 10
    if measured or (_VARYING.search(key) and re.fullmatch(r"[\d.]+", str(value))):
        return "<number>"
    return value


def _shape(value: Any) -> str:
    """Return a text that two items of a list share when one is example enough of both."""
    return repr(sorted(value)) if isinstance(value, dict) else type(value).__name__


def _headers(served: Served) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield status and headers of an answer of each kind of endpoint."""
    keys = {"none": "", "wrong": "sk-remit-no", "agent": served.token}
    keys |= {"auditor": served.key(role="auditor").key, "poor": served.key(usd_nano=1).key}
    for request, case, who, body in json.loads(REQUESTS.read_text(encoding="utf-8")):
        method, path = request.split()
        status, _, found = served.ask(method, path, body, token=keys[who])
        yield ", ".join(filter(None, (request, case))), {"status": str(status), **found}


def _metrics(served: Served) -> dict[str, Any]:
    """Return each family of ``/metrics`` with its kind, meaning, samples and labels."""
    _, text, _ = served.ask("GET", "/metrics", token=served.key(role="auditor").key)
    return {
        family.name: {
            "kind": family.type,
            "meaning": family.documentation,
            "samples": sorted({sample.name for sample in family.samples}),
            "labels": sorted({label for sample in family.samples for label in sample.labels}),
        }
        for family in text_string_to_metric_families(text.decode())
        if family.name.startswith("remit_")
    }
