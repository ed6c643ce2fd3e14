"""The SDKs' own suites, directly and through Remit.

Each suite comes from the SDK's source distribution. The provider is made from the SDK's types
(``answers.py``), so that every path of the SDK has an answer. A test that passes directly must pass
through Remit, unless its path is listed in ``refused.txt``: then Remit must refuse it. The tests
whose client reads answers strictly run here, with ``REMIT_SOAK=1`` the ones of other clients too.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from remit.providers.wire import PASSED_PATHS
from tests.server.running import serving

__all__ = ["run"]

_HERE = Path(__file__).parent
_ENVIRONMENT = _HERE.parents[2] / ".venv" / "clients" / "suites"
_SUITES = {"openai": "/v1", "anthropic": ""}  # what each SDK's base URL ends with
_PLUGINS = {"openai": (), "anthropic": ("-p", "tests._alias_httpx")}
_SERVED = {"openai": 196, "anthropic": 110}  # templates with a passing test; may not fall
_LOSS = 0.01  # of the tests on served paths may fail through Remit only
_OWN_TEMPLATES = {  # paths of Remit's own endpoints with an id, and who makes the object
    "openai": {
        "/files/{id}": "/files", "/files/{id}/content": "/files",
        "/batches/{id}": "/batches", "/batches/{id}/cancel": "/batches",
        "/responses/{id}": "/responses", "/responses/{id}/cancel": "/responses",
        "/responses/{id}/input_items": "/responses", "/responses/compact": "/responses",
        "/responses/input_tokens": "/responses",
        "/chat/completions/{id}": "/chat/completions",
        "/chat/completions/{id}/messages": "/chat/completions",
    },
    "anthropic": {
        "/files/{id}": "/files", "/files/{id}/content": "/files",
        "/messages/batches/{id}": "/messages/batches",
        "/messages/batches/{id}/cancel": "/messages/batches",
        "/messages/batches/{id}/results": "/messages/batches",
    },
}  # fmt: skip
_REFUSALS = (403, 404)
_MISSING: dict[str, Any] = {"outcome": "missing", "error": "", "requests": [], "reached": []}
_MODEL = re.compile(r""""model":"[^"]*",?|--BOUNDARY\r\n[^\r]*name="model"\r\n\r\n.*?\r\n""")
"""The model that Remit adds to a request that names none."""
_SAMPLE = "not loose and not aiohttp"
_TOML = """
[gateway]
retry_base_ms = 5
retry_max_ms = 50
failure_threshold = 100000
[model]
default = "{sdk}"
"""


class _Rule(NamedTuple):
    pattern: str
    reason: str


def run(log: Path) -> int:
    """Run both suites on both sides and print who passes where; return how many suites failed.

    Args:
        log: directory for the outcomes of each suite, a JSON line for each test.
    """
    if not (python := _ENVIRONMENT / "bin" / "python").exists():
        print("suites: no environment; the SDKs' own suites are skipped.")
        return 0
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    program = ["-W", "ignore", "-m", "tests.clients.suites.answers"]
    with (
        tempfile.TemporaryDirectory() as scratch,
        subprocess.Popen([python, *program], stdout=subprocess.PIPE, env=variables) as provider,
    ):
        assert provider.stdout is not None
        try:
            told = json.loads(provider.stdout.readline())
            return sum(_play_both(sdk, told, Path(scratch, sdk), log) for sdk in _SUITES)
        finally:
            provider.kill()


def _play_both(sdk: str, told: dict[str, Any], root: Path, log: Path) -> bool:
    """Run one suite directly and through Remit; return True if it fails through Remit."""
    with serving(root, told["url"], toml=_TOML.replace("{sdk}", sdk), checked=False) as served:
        key = served.key(pass_through=("*",)).key
        sides = {"direct": (told["url"], "sk-direct"), "remit": (served.url, key)}
        direct, remit = (
            _play(sdk, *given, told["url"], log / f"{sdk}-{side}.jsonl")
            for side, given in sides.items()
        )  # fmt: skip
        said = served.errors.read_text()
    if "Traceback" in said:
        print(said)
    templates = [each for each in told["templates"] if each[0] == sdk]
    return not _compare(sdk, direct, remit, templates) or "Traceback" in said


def _play(sdk: str, url: str, key: str, provider: str, outcomes: Path) -> dict[str, Any]:
    """Run one suite against one side; return its tests' lines, keyed by test."""
    outcomes.unlink(missing_ok=True)
    variables = {
        name: value for name, value in os.environ.items()
        if not name.startswith(("REMIT_", "OPENAI_", "ANTHROPIC_"))
    }  # fmt: skip
    chosen = [] if os.environ.get("REMIT_SOAK") else ["-k", _SAMPLE]
    done = subprocess.run(
        [_ENVIRONMENT / "bin" / "python", "-m", "pytest", "-q", "--tb=no", "-p", "recording",
         *_PLUGINS[sdk], "-c", _HERE.parent / "pytest.ini", "--rootdir=.", *chosen,
         "tests/api_resources"],
        cwd=_ENVIRONMENT / "sources" / sdk, check=False, capture_output=True, text=True,
        env={**variables, "PYTHONPATH": f".{os.pathsep}{_HERE}", "PYTHONDONTWRITEBYTECODE": "",
             "SUITE": sdk, "SUITE_KEY": key, "SUITE_PROVIDER": provider,
             "SUITE_OUTCOMES": str(outcomes),
             "SUITE_OWNED": json.dumps(_owned(sdk) if url != provider else []),
             "TEST_API_BASE_URL": url + _SUITES[sdk]},
    )  # fmt: skip
    if not outcomes.exists():
        print(done.stdout + done.stderr)
        return {}
    lines = map(json.loads, outcomes.read_text().splitlines())
    return {line["test"]: line for line in lines}


def _compare(
    sdk: str, direct: dict[str, Any], remit: dict[str, Any], templates: list[list[str]]
) -> bool:
    """Print one suite's figures; return whether they are good enough."""
    rules = _read_rules(sdk)
    counts: Counter[str] = Counter()
    served, used, problems = set(), set(), []
    for test, line in direct.items():
        if line["outcome"] != "passed" or not line["reached"]:
            continue
        counts["direct"] += 1
        other = remit.get(test) or _MISSING
        called = {_template(request, templates) for request in line["requests"]}
        names = {f"TEST {test.removeprefix('tests/api_resources/')}", *called}
        rule = next((each for each in rules for name in names
                     if fnmatch.fnmatchcase(name, each.pattern)), None)  # fmt: skip
        passed = other["outcome"] == "passed"
        counts["remit"] += passed
        if rule is not None:
            used.add(rule)
            counts["refused"] += 1
            if passed or not _is_refusal(other, rule):
                problems.append(f"{test}: not refused ({rule.pattern}): {other['error'][:200]}")
            continue
        counts["served"] += 1
        if not passed:
            counts["lost"] += 1
            print(f"  {test}: {sorted(called)}: {other['outcome']}: {other['error'][:300]}")
            continue
        served |= called
        theirs = _comparable(line)
        ours = [_MODEL.sub("", each) if "model" not in "".join(theirs) else each
                for each in _comparable(other)]  # fmt: skip
        if ours and ours != theirs:  # Remit answers some calls itself
            problems.append(f"{test}: the provider got {ours}, directly {theirs}")
    problems += [f"{rule.pattern} is listed as refused and no test calls it"
                 for rule in rules if rule not in used]  # fmt: skip
    if counts["lost"] > _LOSS * counts["served"]:
        problems.append(f"{counts['lost']} of {counts['served']} tests on served paths fail")
    if len(served) < _SERVED[sdk]:
        problems.append(f"{len(served)} calls are served, and were {_SERVED[sdk]}")
    print(f"{sdk}: {counts['direct']} tests pass directly, {counts['remit']} through Remit; of "
          f"{counts['served']} on {len(served)} served calls {counts['lost']} fail; "
          f"{counts['refused']} on refused ones are refused:")  # fmt: skip
    for rule in rules:
        print(f"  {rule.pattern:60} {rule.reason}")
    for problem in problems:
        print(f"  PROBLEM: {problem}")
    return not problems and bool(counts["direct"])


def _read_rules(sdk: str) -> list[_Rule]:
    """Return the refused calls of an SDK; a line in brackets is the reason of those below it."""
    rules, reason = [], ""
    for line in (_HERE / "refused.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            reason = line.strip("[]")
        elif line.startswith(f"{sdk} "):
            rules.append(_Rule(line.removeprefix(f"{sdk} "), reason))
    return rules


def _template(request: list[Any], templates: list[list[str]]) -> str:
    """Return a request's method and template, such as ``GET /v1/files/{file_id}``."""
    method, path, _ = request
    path = "/v1/" + path.partition("/v1/")[2]
    found = [each for each in templates if each[1] == method and re.fullmatch(each[3], path)]
    gaps = min(found, key=lambda each: each[2].count("{"), default=["", "", path])
    return f"{method} {gaps[2]}"


def _is_refusal(line: dict[str, Any], rule: _Rule) -> bool:
    """Return True if the provider got nothing and the client a refusal in the SDK's dialect."""
    expected = (400,) if rule.pattern.startswith("TEST ") else _REFUSALS
    statuses = {status for *_, status in line["requests"]}
    own = {path for _, path, _ in line["requests"]}
    reached = any(path in own for _, path, *_ in line["reached"])
    return not reached and bool(statuses) and statuses <= set(expected)


def _comparable(line: dict[str, Any]) -> list[str]:
    """Return what reached the provider, without the boundaries of forms and Remit's addition."""
    told, own = [], {path for _, path, _ in line["requests"]}
    for method, path, query, body in line["reached"]:
        if found := re.match(r"--(\S+)\r\n", body):
            body = body.replace(found[1], "BOUNDARY")
        added = r'"stream_options":\{"include_usage":true\}'
        body = re.sub(f"{added},|,{added}", "", body)
        if method != "GET" and path in own:  # Remit may read what it knows, or wants to know
            told.append(f"{method} {path}?{query.replace('beta=true', '')} {body}")
    return told


def _owned(sdk: str) -> list[dict[str, str]]:
    """Return the patterns of paths that name an object, each with the path that makes one.

    A path without an id is listed too, without a group: it is not an id of another path.
    """
    rows = [row for row in PASSED_PATHS if row.dialect == sdk]
    made_by: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: row.template.count("{")):
        for kind, _ in row.makes:
            made_by.setdefault(kind, row.template)
    templates = {row.template: made_by.get(row.kind) for row in rows} | _OWN_TEMPLATES[sdk]
    owned = []
    for template, maker in templates.items():
        path = re.escape(f"/v1{template}").replace(r"\{id\}", "([^/]+)")
        if maker:
            owned.append({"path": path, "made_by": f"/v1{maker}"})
    return owned
