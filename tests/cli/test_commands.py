"""Every command, against a real server where a model is asked."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.support.agents import by_kind
from tests.support.commands import require_said, run_remit
from tests.support.processes import run_program
from tests.support.wire import Raw, anthropic_answer, serve, tool_use


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import remit.server.http_server", {"aiohttp"}),
        (
            "from remit.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass",
            {"aiohttp", "pydantic", "remit.agents.supervisor", "remit.ledger.client"},
        ),
    ],
    ids=["serve", "help"],
)
def test_a_start_imports_nothing_heavy_and_rare(code: str, heavy: set[str]) -> None:
    check = f"{code}\nimport sys\nassert not {heavy} & set(sys.modules)"
    # A process of its own: the tests' own programs start with these modules.
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which a two-turn conversation took place; not to be changed."""
    script = by_kind(
        anthropic_answer("Hello there!"),
        anthropic_answer("Let me see.", tool_use("list_sessions", {})),
        anthropic_answer("There is one session."),
    )
    place = tmp_path_factory.mktemp("talked")
    with serve(script) as server:
        result = run_remit(
            "chat",
            cwd=place,
            stdin="hello\n\nlist the sessions\n/session\n/cost\n/trace\n/verify\n/nonsense\n"
            "/exit\nnever\n",
            environment={"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-secret"},
        )
    assert result.returncode == 0, result.stderr
    assert "Hello there!" in result.stdout
    assert "There is one session." in result.stdout
    assert "result of list_sessions (ok)" in result.stdout
    assert "verified: " in result.stdout
    assert "Unknown command /nonsense" in result.stderr
    assert "never" not in result.stderr
    assert "secret" not in result.stdout + result.stderr
    return place / ".remit"


@pytest.fixture
def talked(work: Path, conversation: Path) -> Path:
    """The test's own copy of that root."""
    return shutil.copytree(conversation, work / ".remit")


def _json(remit: Run, *arguments: str) -> Any:
    result = remit(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_what_a_conversation_leaves(remit: Run, talked: Path) -> None:
    turns = _json(remit, "ledger", "query", "--event-type", "TURN_RECORDED")["entries"]
    said = [(t["metadata"]["user_message"], t["metadata"]["response"]) for t in turns]
    assert said == [("hello", "Hello there!"), ("list the sessions", "There is one session.")]
    (call,) = _json(remit, "ledger", "query", "--event-type", "TOOL_CALL")["entries"]
    assert call["metadata"]["tool_id"] == "list_sessions"
    stats = _json(remit, "ledger", "stats")
    assert stats["events"]["DISPATCH"] == stats["events"]["EXCHANGE"] == 5
    assert stats["entries"] == sum(stats["events"].values())
    (session,) = _json(remit, "session", "list")["sessions"]
    assert (session["turns"], session["ended"]) == (2, True)
    assert session["user_id"] == ""
    listed = remit("session", "list")
    assert f"  {session['agent_id']}  " in listed.stdout
    assert listed.stderr == ""  # a heading is for terminals
    shown = remit("session", "show", "last").stdout
    for text in ("hello", "Hello there!", "list the sessions", "There is one session."):
        assert text in shown
    shown = _json(remit, "session", "show", session["session_id"])
    assert len(shown["turn_list"]) == 2


def test_verify_and_what_it_finds(remit: Run, talked: Path) -> None:
    report = _json(remit, "ledger", "verify")
    assert report["verified"] is True
    assert report["first_bad_seq"] is None
    assert report["problems"] == []
    assert report["erased"] == 0
    assert remit("ledger", "verify").stdout.startswith(f"verified: {report['entries']} entries")
    started = _json(remit, "ledger", "query", "--event-type", "SESSION_START")["entries"][0]
    with sqlite3.connect(talked / "ledger.db") as other:
        other.execute("UPDATE entries SET record = replace(record, 'STARTED', 'STOPPED')")
    other.close()
    result = remit("ledger", "verify", "--json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["verified"] is False
    assert json.loads(result.stdout)["first_bad_seq"] == int(started["id"][4:], 16)
    first, *lines = remit("ledger", "verify").stdout.splitlines()
    assert first.startswith("NOT VERIFIED")
    assert lines[0] == f"  {started['id']}: the record does not match entry_hash"
    assert sum("stored checkpoint" in line for line in lines) == 1


def test_show_gives_the_entry_and_the_records_exact_bytes(remit: Run, talked: Path) -> None:
    (started,) = _json(remit, "ledger", "query", "--event-type", "SESSION_START")["entries"]
    entry = _json(remit, "ledger", "show", started["id"])
    record = remit("ledger", "show", started["id"], "--record").stdout
    assert hashlib.sha256(record.encode()).hexdigest() == entry["entry_hash"]
    assert "SESSION_START" in remit("ledger", "show", started["id"]).stdout
    call = _json(remit, "ledger", "query", "--event-type", "EXCHANGE")["entries"][0]["id"]
    shown = remit("ledger", "show", call).stdout
    assert "\nmetadata:\n  " in shown
    assert '\n  prompt: [{"' in shown
    assert re.search(r"\n  cost_usd: \$\d", shown), shown
    remit("ledger", "erase", call, "--reason", "asked", "--yes")
    gone = remit("ledger", "show", call).stdout
    assert re.search(r'\n  prompt: \["\[content erased under LED-', gone), gone
    assert "Erased(" not in gone
    require_said(
        remit("ledger", "show", started["id"], "--record", "--body"),
        "--record and --body cannot be written to one output",
        code=2,
    )
    for which in ("--body", "--answer"):
        none = remit("ledger", "show", started["id"], which)
        require_said(none, f"has no {which[2:]} as it was on the wire", code=2)
        assert none.stdout == ""
    missing = remit("ledger", "show", "LED-0000ffff")
    require_said(missing, "has no entry")
    assert missing.stdout == ""


def test_a_session_is_resumed_by_another_process(
    remit: Run, remit_process: Run, talked: Path
) -> None:
    (session,) = _json(remit, "session", "list")["sessions"]

    def recall(body: dict[str, Any]) -> Any:
        said = [turn["content"] for turn in body["messages"] if turn["role"] == "user"]
        return anthropic_answer(f"Before that: {said[-2]}.")(body)  # type: ignore[operator]

    with serve(by_kind(recall)) as server:
        result = remit_process(
            "session",
            "resume",
            session["session_id"],
            stdin="and what came before?\n",
            ANTHROPIC_BASE_URL=server.url,
        )
    assert "Before that: list the sessions." in result.stdout
    assert _json(remit, "session", "list")["sessions"][0]["turns"] == 3


def test_ask(remit: Run) -> None:
    with serve(by_kind(anthropic_answer("Four."))) as server:
        env = {"ANTHROPIC_BASE_URL": server.url}
        plain = remit("ask", "what", "is", "2+2?", **env)
        data = remit("ask", "again", "--json", **env)
    assert plain.returncode == 0
    assert plain.stdout == "Four.\n"
    answer = json.loads(data.stdout)
    assert answer["response"] == "Four."
    assert answer["quality_gate_passed"] is True
    with serve(Raw(b"", 500)) as server:
        failed = remit("ask", "hello", ANTHROPIC_BASE_URL=server.url)
    assert failed.returncode == 1


def test_init_is_repeatable_and_puts_back_what_is_missing(remit: Run, tmp_path: Path) -> None:
    root = tmp_path / "work" / ".remit"
    assert remit("init").returncode == 0
    compared = remit("package", "registry").stdout
    assert compared.startswith("The registries match the ledger.\nsha256:")
    names = {str(path.relative_to(root)) for path in root.rglob("*")}
    assert {"remit.toml", "ledger.db", "HOT", "HO2", "HO1/contracts/PRC-CLASSIFY-001.json"} <= names
    (root / "HO1/contracts/PRC-CLASSIFY-001.json").unlink()
    (root / "remit.toml").write_text("[supervisor]\nclassify = false\n")
    assert remit("init").returncode == 0
    assert (root / "HO1/contracts/PRC-CLASSIFY-001.json").exists()
    assert "classify = false" in (root / "remit.toml").read_text()
    assert remit("init", "elsewhere").returncode == 0
    assert (tmp_path / "work" / "elsewhere" / "remit.toml").exists()


def test_config_show_tells_where_each_value_came_from(remit: Run, tmp_path: Path) -> None:
    remit("init")
    (tmp_path / "work" / ".remit" / "remit.toml").write_text(
        '[gateway]\ntimeout_ms = 5\n[providers.openai]\napi_key = "sk-secret"\n'
        '[providers.mine]\nkind = "openai"\nbase_url = "http://127.0.0.1:1/v1"\n'
    )
    result = remit("config", "show", "--json", REMIT_WORKER__TURN_LIMIT="3")
    rows = {row["key"]: row for row in json.loads(result.stdout)["settings"]}
    assert rows["gateway.timeout_ms"]["value"] == 5
    assert rows["gateway.timeout_ms"]["source"].endswith("remit.toml")
    assert rows["gateway.max_retries"]["source"] == "default"
    assert rows["worker.turn_limit"]["value"] == 3
    assert rows["worker.turn_limit"]["source"] == "environment REMIT_WORKER__TURN_LIMIT"
    assert rows["providers.mine.base_url"]["value"] == "http://127.0.0.1:1/v1"
    assert all(row["meaning"] or row["key"].startswith("model.prefixes") for row in rows.values())
    assert "sk-secret" not in result.stdout
    assert "gateway.timeout_ms = 5" in remit("config", "show").stdout


def test_a_password_in_a_url_is_shown_by_no_command(remit: Run, work: Path) -> None:
    remit("init")
    config, before = work / ".remit/remit.toml", (work / ".remit/remit.toml").read_text()
    password = "horse-battery"
    config.write_text(f'{before}\n[providers.openai]\nbase_url = "ftp://me:{password}@h/v1"\n')
    refused = remit("chat", OPENAI_API_KEY="sk-x")
    assert "'ftp://me:[secret]@h/v1', which is not an http(s) URL" in refused.stderr
    database = f"postgresql://me:{password}@127.0.0.1:9/db"
    shown = remit("config", "show", REMIT_DATABASE_URL=database)
    assert "ledger.path = 'postgresql://" in shown.stdout
    assert "providers.openai.base_url = 'ftp://" in shown.stdout
    for result in (refused, shown, remit("config", "show", "--json")):
        assert password not in result.stdout + result.stderr


def test_a_bad_setting_is_named_with_the_nearest_right_one(remit: Run, work: Path) -> None:
    remit("init")
    for toml, words in (
        ("[gatewy]\n", ["gatewy", "gateway"]),
        ("[gateway]\ntimeout_sm = 5\n", ["timeout_sm", "gateway.timeout_ms"]),
        ("[gateway]\ntimeout_ms = -5\n", ["gateway.timeout_ms"]),
        ('[gateway]\ntimeout_ms = "soon"\n', ["gateway.timeout_ms"]),
        ("[gateway\n", ["not valid TOML"]),
        ('[providers.mine]\nbase_url = "x"\n', ["providers.mine"]),
        ('[providers.openai]\napi_kye = "x"\n', ["api_kye", "api_key"]),
    ):
        (work / ".remit" / "remit.toml").write_text(toml)
        result = remit("chat", stdin="hello\n")
        assert result.returncode == 1
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        for word in words:
            assert word in result.stderr, toml


def test_ask_reads_standard_input(remit: Run, work: Path) -> None:
    with serve(by_kind(anthropic_answer("Two lines."))) as server:
        env = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-secret"}
        asked = remit("ask", "-", "--json", stdin="one\ntwo\n", **env)
        assert json.loads(asked.stdout)["response"] == "Two lines."
        (turn,) = _json(remit, "session", "show", "--last")["turn_list"]
        assert turn["user_message"] == "one\ntwo\n"
        empty = remit("ask", "-", stdin=" \n", **env)
    require_said(empty, "The message is empty.", code=2)


def test_errors_say_what_and_what_next(remit: Run, tmp_path: Path) -> None:
    require_said(remit("ledger", "stats"), "error: There is no root", "next: Run `remit init`")
    assert "Traceback" in remit("ledger", "stats", "--debug").stderr
    assert remit("ledger", "stats", "--nonsense").returncode == 2
    assert remit("nonsense").returncode == 2
    require_said(
        remit("chat", stdin="hi\n", XDG_CACHE_HOME=str(tmp_path / "empty")), "remit model pull"
    )
    remit("init")
    (tmp_path / "work" / ".remit" / "ledger.db").write_text("not a database at all, only words")
    for suffix in ("-wal", "-shm"):
        (tmp_path / "work" / ".remit" / f"ledger.db{suffix}").unlink(missing_ok=True)
    require_said(remit("ledger", "stats"), "not a ledger")


def test_models_of_ones_own(remit: Run, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    mine = tmp_path / "Mine.gguf"
    mine.write_bytes(b"GGUF" + b"\x00" * 100)
    other = tmp_path / "other.gguf"
    other.write_bytes(b"nope")
    env = {"XDG_CACHE_HOME": cache}
    listed = json.loads(remit("model", "list", "--json", **env).stdout)["models"]
    assert [(m["name"], m["here"]) for m in listed] == [("smollm2-135m", False)]
    assert remit("model", "add", str(mine), **env).returncode == 0
    assert remit("model", "add", str(mine), **env).returncode == 1  # there already
    assert remit("model", "add", str(other), **env).returncode == 1
    assert remit("model", "add", str(tmp_path / "absent"), **env).returncode == 1
    assert remit("model", "add", str(mine), "--name", "../up", **env).returncode == 1
    assert remit("model", "pull", "unheard-of", **env).returncode == 1
    listed = json.loads(remit("model", "list", "--json", **env).stdout)["models"]
    assert [(m["name"], m["here"]) for m in listed] == [("mine", True), ("smollm2-135m", False)]
    assert remit("model", "pull", "--if-needed", ANTHROPIC_API_KEY="k", **env).returncode == 0


def test_doctor(remit: Run, tmp_path: Path) -> None:
    assert remit("doctor").returncode == 1
    remit("init")
    result = remit("doctor", "--json", ANTHROPIC_API_KEY="k")
    assert result.returncode == 0
    checks = {item["check"]: item for item in json.loads(result.stdout)["checks"]}
    assert checks["model"]["message"] == "anthropic/claude-sonnet-5"
    assert checks["ledger"]["passed"]
    nothing = remit("doctor", XDG_CACHE_HOME=str(tmp_path / "empty"))
    assert nothing.returncode == 1
    assert "FAIL" in nothing.stdout


def test_recover_settles_what_a_dead_process_left(remit: Run, tmp_path: Path) -> None:
    remit("init")
    script = """
import os, sys
from remit import LedgerClient
from remit.gateway import LLMGateway, RouterConfig
from tests.support.requests import prompt_request

class Dies:
    def send(self, request):
        os._exit(9)

config = RouterConfig(lease_margin_ms=-60_000)
gateway = LLMGateway(LedgerClient(sys.argv[1]), config=config, dev_mode=True)
gateway.register_provider("mock", Dies())
gateway.route(prompt_request())
"""
    path = tmp_path / "work" / ".remit" / "ledger.db"
    died = run_program("-c", script, str(path), environment=os.environ)
    assert died.returncode == 9
    result = remit("ledger", "recover")
    assert result.returncode == 0
    assert re.fullmatch(r"settled: LED-\w{8}\n", result.stdout), result.stdout
    again = json.loads(remit("ledger", "recover", "--json").stdout)
    assert again == {"settled": [], "waiting": 0}
    assert remit("ledger", "recover").stdout == "Nothing to settle.\n"


def test_a_removed_ledger_is_not_a_verified_one(remit: Run, tmp_path: Path) -> None:
    remit("init")
    (tmp_path / "work" / ".remit" / "ledger.db").unlink()
    for command in (("ledger", "verify"), ("chat",)):
        result = remit(*command, ANTHROPIC_API_KEY="k")
        assert result.returncode == 1
        assert "There is no ledger" in result.stdout + result.stderr
    require_said(remit("init"), "the record of earlier operations is missing", "--new-ledger")
    assert not (tmp_path / "work" / ".remit" / "ledger.db").exists()
    assert remit("init", "--bare", "--new-ledger").returncode == 2
    assert remit("init", "--new-ledger").returncode == 0
    assert remit("ledger", "verify").returncode == 0
    assert remit("gate", "check", "--gate", "G5", "--enforce").returncode == 0


def test_a_budget_is_set_shown_and_checked(remit: Run) -> None:
    remit("init")
    remit("key", "create", "--name", "k", "--budget-usd", "5")
    limited = _json(remit, "budget", "set", "--key", "k", "--usd", "12.50", "--tokens", "1000")
    assert (limited["scope"]["limit_usd"], limited["scope"]["token_limit"]) == (12.5, 1000)
    ofagent = remit("budget", "set", "--session", "SES-A", "--agent", "seller", "--tokens", "5")
    assert ofagent.stdout.startswith("session:SES-A/agent:seller")
    assert remit("budget", "set", "--key", "k", "--agent", "seller").returncode == 2
    assert "0 calls of 3" in remit("budget", "set", "--session", "SES-A", "--turns", "3").stdout
    everything = _json(remit, "budget", "show")
    assert [scope["scope"] for scope in everything["scopes"]][1:] == [
        "session:SES-A", "session:SES-A/agent:seller",
    ]  # fmt: skip
    assert {name: everything[name] for name in everything if name != "scopes"} == {
        "spent_usd": 0, "reserved_usd": 0, "limit_usd": 12.5, "spent_tokens": 0,
    }  # fmt: skip
    assert len(_json(remit, "budget", "show", "--key", "k")["scopes"]) == 1
    daily = _json(remit, "budget", "set", "--key", "k", "--usd", "1", "--window", "day",
                  "--time-zone", "Europe/Berlin", "--on-short", "clamp")["scope"]  # fmt: skip
    assert (daily["window"], daily["time_zone"], daily["on_short"]) == (
        "day", "Europe/Berlin", "clamp",
    )  # fmt: skip
    assert "spent of $1.00 a day;" in remit("budget", "show", "--key", "k").stdout
    remit("key", "create", "--name", "w", "--budget-usd", "5", "--window", "week")
    assert _json(remit, "budget", "show", "--key", "w")["scopes"][0]["window"] == "week"
    assert _json(remit, "budget", "check")["equal"] is True
    for wrong in (
        ("show", "--user", "u"), ("show", "--agent", "seller", "--key", "k"), ("set",),
        ("set", "--user", "u", "--team", "t"), ("set", "--user", "u", "--window", "year"),
    ):  # fmt: skip
        assert remit("budget", *wrong).returncode == 2
    for empty in (
        ("key", "create", "--name", "e", "--team", ""), ("key", "create", "--name", "e", "--user="),
        ("package", "remove", ""), ("package", "rollback", ""),
    ):  # fmt: skip
        require_said(remit(*empty), "'': String should have at least 1 character.", code=2)
    assert remit("key", "show", "e").returncode == 1


@pytest.mark.parametrize(
    ("closed", "command"),
    [
        ("<&-", "chat"), (">&-", "ledger stats --json"), (">&-", "session list"),
        ("2>&-", "session list"), ("<&- >&- 2>&-", "chat"),
    ],
)  # fmt: skip
def test_a_caller_may_close_the_standard_streams(talked: Path, closed: str, command: str) -> None:
    line = f'exec "{sys.executable}" -m remit {command} --root "{talked}" --debug {closed}'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
