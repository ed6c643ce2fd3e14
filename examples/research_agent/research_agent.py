"""Research a git repository: two concurrent steps with tools of an MCP server, then a report.

    pip install 'remit[mcp]' mcp-server-git
    python research_agent.py "What changed lately, and is anything left uncommitted?" --repository .

Here `flags` configure the server. In your own root, configure it in remit.toml: `[mcp.git]` with
`command`, `args` and the allowed `tools`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from remit import RemitError, Runtime
from remit.agents.supervisor import Plan, Planner, PlanStep, TurnContext

ALLOWED = [
    "git_log",
    "git_show",
    "git_status",
    "git_diff_unstaged",
]  # tools that only read


def planner(repository: Path) -> Planner:
    """Return the planner, which splits each question into three steps."""

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
    """Run one question, and print the report and the steps."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("question", nargs="?", default="What changed lately?")
    options.add_argument("--repository", type=Path, default=Path())
    options.add_argument("--root", help="root (default: the nearest .remit; created if missing)")
    options.add_argument("--model", help="anthropic, openai, local, or the name of a model")
    given = options.parse_args()
    repository = given.repository.resolve()
    server = {
        "mcp.git.command": sys.executable,
        "mcp.git.args": ["-m", "mcp_server_git", "--repository", str(repository)],
        "mcp.git.tools": ALLOWED,
        "mcp.git.idempotent": ["*"],  # tools that only read may run again after a crash
    }

    with Runtime.open(given.root, model=given.model, flags=server, create=True) as runtime:
        runtime.require_model()
        agent = runtime.agent("research", mcp=["git"], planner=planner(repository))
        result = agent.run(given.question)
        print(result.response)
        for order in result.wo_chain_summary:
            print(f"{order['wo_id']}: {order['state']}, {order['total_tokens']} tokens")
        print(f"remit trace {result.session_id} shows every step.")


if __name__ == "__main__":
    try:
        main()
    except RemitError as error:
        sys.exit(str(error))
