"""``python -m tests.clients``: start both sides, run every client, print who passes where.

Names of groups or clients as arguments run only these: ``python -m tests.clients current`` or
``python -m tests.clients current/test_openai.py``. ``suites`` are the SDKs' own test suites
(:mod:`tests.clients.suites.running`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.clients.suites import running as suites
from tests.server.running import serving
from tests.support.strict.running import running

_HERE = Path(__file__).parent
_TREE = _HERE.parents[1]
_ENVIRONMENTS = _TREE / ".venv" / "clients"
_GROUPS = {
    "current": _ENVIRONMENTS / "current" / "bin" / "python",
    "openai2": _ENVIRONMENTS / "openai2" / "bin" / "python",
    "crewai": _ENVIRONMENTS / "crewai" / "bin" / "python",
    "agents": _ENVIRONMENTS / "agents" / "bin" / "python",
    "programs": Path(sys.executable),
}
_LANES = (
    ("current",),
    ("openai2", "crewai", "agents", "programs"),
)  # at the same time: clients wait a lot
_NO_TESTS = 5  # pytest's exit code
_BUDGET_NANO_USD = 500 * 10**9
_TOML = """
[gateway]
retry_base_ms = 5
retry_max_ms = 50
failure_threshold = 1000
[model.prefixes]
"gemini-" = "gemini"
"anthropic.claude-" = "bedrock"
"eu.anthropic.claude-" = "converse"
"claude-sonnet-4-5@" = "vertex"
[providers.gemini]
kind = "gemini"
base_url = "{url}/v1"
api_key = "sk-upstream-gemini"
default_model = "gemini-2.5-flash"
[providers.bedrock]
kind = "anthropic"
cloud = "aws"
base_url = "{url}"
api_key = "sk-upstream-bedrock"
default_model = "anthropic.claude-sonnet-4-5-20250929-v1:0"
[providers.converse]
kind = "converse"
base_url = "{url}"
api_key = "sk-upstream-bedrock"
default_model = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
[providers.vertex]
kind = "anthropic"
cloud = "google"
base_url = "{url}/v1/projects/p/locations/l"
api_key = "sk-upstream-vertex"
default_model = "claude-sonnet-4-5@20250929"
"""
# Claude Code tries the name with a region, too, before it uses the one that it was given.
_PRICED = (
    ("bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ("converse", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ("vertex", "claude-sonnet-4-5@20250929"),
)
_QUIET = {"LANGSMITH_TRACING": "false", "OTEL_SDK_DISABLED": "true", "DO_NOT_TRACK": "1",
          "CREWAI_DISABLE_TELEMETRY": "true", "OPENAI_AGENTS_DISABLE_TRACING": "1",
          "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONDONTWRITEBYTECODE": ""}  # fmt: skip
_OTHERS = (
    "REMIT_",
    "OPENAI_",
    "ANTHROPIC_",
    "GEMINI_",
    "GOOGLE_",
    "LANGCHAIN_",
    "CLAUDE",
    "CODEX_",
    "OPENCODE_",
)


def _run(group: str, chosen: list[str], sides: dict[str, object], log: Path) -> int:
    """The exit code of a group's tests; what they print comes at once, when they are done."""
    python = _GROUPS[group]
    if not python.exists():
        print(f"{group}: no environment ({python.parent.parent.name}); its tests are skipped.")
        return 0
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OTHERS)}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-rfExX", "--tb=short", "-c", _HERE / "pytest.ini",
         f"--rootdir={_TREE}", f"--confcutdir={_HERE}", f"--junitxml={log / group}.xml",
         f"--basetemp={log / group}-tmp", *(chosen or [str(_HERE / group)])],
        cwd=_TREE, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**kept, **_QUIET, "REMIT_CLIENT_SIDES": json.dumps(sides), "PYTHONPATH": str(_TREE),
             "REMIT_CLIENT_LOG": str(log)},
    )  # fmt: skip
    print(f"{group}:\n{done.stdout}", flush=True)
    return done.returncode


def _set_price(root: Path, provider: str, model: str) -> None:
    """Give a model a price, which the budget of a key needs."""
    subprocess.run(
        [Path(sys.executable).parent / "remit", "price", "set", model, "--provider", provider,
         "--input", "3", "--output", "15", "--context-window", "200000", "--max-output-tokens",
         "64000", "--root", root],
        check=True, capture_output=True,
    )  # fmt: skip


def _lane(groups: dict[str, list[str]], log: Path) -> int:
    """Run some groups one after the other between servers of their own; how many failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as scratch, running() as url:
        with serving(
            Path(scratch, "root"), url, toml=_TOML.format(url=url), checked=False
        ) as served:
            for provider, model in _PRICED:
                _set_price(served.root, provider, model)
            key = served.key(usd_nano=_BUDGET_NANO_USD).key
            sides = {"direct": {"url": url, "key": "sk-direct"},
                     "remit": {"url": served.url, "key": key}}  # fmt: skip
            for group, files in groups.items():
                failed += _run(group, files, sides, log) not in (0, _NO_TESTS)
            said = served.errors.read_text()
        if "Traceback" in said:
            failed += 1
            print(said)
    return failed


def _table(log: Path) -> None:
    """Clients, and how many tasks of each pass directly and through Remit."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for file in sorted(log.glob("*.xml")):
        for case in ElementTree.parse(file).iter("testcase"):
            names = case.attrib["classname"].split(".")
            client = next((n for n in names if n.startswith("test_")), "?").removeprefix("test_")
            where = "remit" if "remit" in f"{names[-1]} {case.attrib['name']}".lower() else "direct"
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                outcome = "failed"
            elif skipped is not None:
                outcome = "known" if skipped.attrib.get("type") == "pytest.xfail" else "skipped"
            else:
                outcome = "passed"
            sides = counts.setdefault(client, {"direct": Counter(), "remit": Counter()})
            sides[where][outcome] += 1
    print(f"\n{'client':24}{'direct':>12}{'Remit':>12}")
    for client, sides in sorted(counts.items()):
        told = []
        for where in ("direct", "remit"):
            count = sides[where]
            asked = count.total() - count["skipped"]
            told.append(f"{count['passed']}/{asked}" if asked else "skipped")
        known = sides["remit"]["known"]
        print(f"{client:24}{told[0]:>12}{told[1]:>12}" + (f"  ({known} known)" if known else ""))


def main() -> int:
    """Run it; 1 when a group failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("chosen", nargs="*")
    parser.add_argument("--keep", type=Path, help="a directory for what reached the provider")
    given = parser.parse_args()
    chosen: dict[str, list[str]] = {}
    for one in given.chosen or (*_GROUPS, "suites"):
        group, _, file = one.partition("/")
        chosen.setdefault(group, []).extend([str(_HERE / one)] if file else [])
    began = time.monotonic()
    lanes = [{group: chosen[group] for group in lane if group in chosen} for lane in _LANES]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(len(_LANES) + 1) as pool:
        log = given.keep or Path(scratch)
        log.mkdir(exist_ok=True)
        own = pool.submit(suites.run, log) if "suites" in chosen else None
        failed = sum(pool.map(lambda lane: _lane(lane, log), filter(None, lanes)))
        failed += own.result() if own is not None else 0
        _table(log)
    print(f"\n{time.monotonic() - began:.0f} s")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
