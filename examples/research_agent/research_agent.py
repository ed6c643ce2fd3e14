"""Research in a git repository: two steps at once, each with tools of an MCP server, then a report.

    pip install 'remit[mcp]' mcp-server-git
    python research_agent.py "What changed lately, and is anything left uncommitted?" --repository .

The server stands in `flags` here; in a root of your own it stands in remit.toml, as `[mcp.git]`
with `command`, `args` and the `tools` that are let in.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from remit import Runtime
from remit.agents.supervisor import Plan, Planner, PlanStep, TurnContext

LET_IN = ["git_log", "git_show", "git_status", "git_diff_unstaged"]  # it has more; these only read


def planner(repository: Path) -> Planner:
    """What each question is broken into."""

    def plan(turn: TurnContext) -> Plan:
        where = f"The repository is {repository}. The question is part of a greater research."
        return Plan(
            (
                PlanStep.task("history", f"{where} Tell what the log says.", "git__git_log"),
                PlanStep.task("present", f"{where} Tell what is uncommitted.", "git__git_status"),
                PlanStep.task(
                    "report",
                    "Answer from the results of the steps before, in three sentences.",
                    after=("history", "present"),
                ),
            )
        )

    return plan


def main() -> None:
    """Ask, and print the report."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("question", nargs="?", default="What changed lately?")
    options.add_argument("--repository", type=Path, default=Path())
    options.add_argument("--root", help="default: the nearest .remit, made when there is none")
    options.add_argument("--model", help="'anthropic', 'openai', 'local', or a model's name")
    given = options.parse_args()
    repository = given.repository.resolve()
    server = {
        "mcp.git.command": sys.executable,
        "mcp.git.args": ["-m", "mcp_server_git", "--repository", str(repository)],
        "mcp.git.tools": LET_IN,
        "mcp.git.idempotent": ["*"],  # they only read: after a crash they simply run again
    }

    with Runtime.open(given.root, model=given.model, flags=server, create=True) as runtime:
        runtime.require_model()
        agent = runtime.agent("research", mcp=["git"], planner=planner(repository))
        result = agent.run(given.question)
        print(result.response)
        for order in result.wo_chain_summary:
            print(f"{order['wo_id']}: {order['state']}, {order['total_tokens']} tokens")
        print(f"remit trace {result.session_id} shows how that came about.")


if __name__ == "__main__":
    main()
