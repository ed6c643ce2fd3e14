"""What ADMIN does with phrases, with the small local model: ``python -m tests.agents.phrases``.

Each phrase is right, plainly refused ("I cannot"), beside the point (another tool's true result),
or invented: a text that no code printed, or a value that no tool gave. Prints a table, and with
``-v`` each phrase that is not right.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from remit import Runtime
from remit.agents import RECALL
from remit.agents.supervisor import TurnResult

FILES = {
    name: Path(__file__).with_name(f"phrases_{name}.json")
    for name in ("seen", "unseen", "blind", "fresh")
}
OUTCOMES = ("right", "cannot", "beside", "invented")
_CHOOSING = {"PRC-CLASSIFY-001", "PRC-TOOLCHOICE-001", "PRC-TOOLARGUMENTS-001"}
_GREETINGS = ("Hello!", "You're welcome.", "Goodbye.")
_VALUE = re.compile(r"[\w.-]*\d[\w.-]*")


class Talk:
    """A root with a few turns behind it, and one session in which phrases are said."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        with runtime.session() as earlier:
            earlier.turn("list the sessions")
        runtime.agent("writer", order_tokens=2_000).run("Say hi.")
        (*_, exchange) = runtime.ledger.read_by_event_type("EXCHANGE")
        self._ids = {"{session}": earlier.session_id, "{exchange}": exchange.id}
        self._conversation = runtime.session()
        self._said = [("", "")]
        self.say("hello")

    def fill(self, text: str) -> str:
        """A phrase with ids that exist."""
        for name, id_ in self._ids.items():
            text = text.replace(name, id_)
        return text

    def say(self, phrase: str) -> tuple[TurnResult, tuple[str, str], bool]:
        """The turn, the one before it, and whether a model wrote any of the answer."""
        before = self._runtime.ledger.head()[0]
        result = self._conversation.turn(phrase)
        asked = {
            entry.metadata["contract_id"]
            for entry in self._runtime.ledger.query(
                event_type="EXCHANGE", session_id=self._conversation.session_id
            )
            if int(entry.id[4:], 16) > before
        }
        last = self._said[-1]
        self._said.append((phrase, result.response))
        return result, last, bool(asked - _CHOOSING)

    def outcome(self, case: dict[str, Any]) -> tuple[str, TurnResult]:
        """What became of one phrase."""
        result, last, spoken = self.say(self.fill(case["phrase"]))
        refused = result.response.startswith("I cannot")  # it may quote what it was asked
        asked = self.fill(case["phrase"]) if refused else ""
        if spoken or not _grounded(result, (*last, asked)):
            return "invented", result
        wanted: Sequence[str] = case["tools"]
        said = {
            "@said": f"You said: {last[0]}",
            "@said_you": f"I said: {last[1]}",
            "@said_before": f"You said: {self._said[-3][0]}",
        }
        used = list(result.tool_results)
        recalled = bool(used) and used[0]["tool_id"] == RECALL
        text = result.response.partition("\n")[2] if recalled else ""
        if text in {said[name] for name in wanted if name in said}:
            return "right", result
        if "@abilities" in wanted and result.response.startswith("I answer from"):
            return "right", result
        if not used or result.response.startswith("I cannot answer that from"):
            if result.response.startswith("I cannot"):
                return "right" if "@cannot" in wanted else "cannot", result
            greeted = "@greeting" in wanted and result.response.startswith(_GREETINGS)
            return "right" if greeted else "beside", result
        (tool,) = used
        given = {name: self.fill(str(value)) for name, value in case["arguments"].items()}
        fits = all(
            value in map(str, tool["arguments"].values())
            if name.startswith("@")
            else str(tool["arguments"].get(name)) == value
            for name, value in given.items()
        )
        if tool["status"] != "ok":
            return "right" if "@failed" in wanted or tool["tool_id"] in wanted else "cannot", result
        return "right" if tool["tool_id"] in wanted and fits else "beside", result


def _grounded(result: TurnResult, last: tuple[str, ...]) -> bool:
    """Whether each value that is said stands in a tool's result, or was said before."""
    sources = json.dumps([result.tool_results, last], default=str)
    lines = [line for line in result.response.splitlines() if not line.startswith("- ")]
    values = (found.strip(".-") for line in lines for found in _VALUE.findall(line))
    return all(value.rstrip("0").rstrip(".") in sources for value in values)


def measure(
    cases: Iterable[dict[str, Any]], root: Path
) -> Iterator[tuple[dict[str, Any], str, TurnResult]]:
    """The outcome of each phrase, said in one session of a new root."""
    flags = {"supervisor.classify": False}  # a label that nothing here reads
    with Runtime.open(root, create=True, model="local", flags=flags) as runtime:
        talk = Talk(runtime)
        for case in cases:
            yield case, *talk.outcome(case)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sets", nargs="*", default=[*FILES], help=f"{', '.join(FILES)}, or a JSON file"
    )
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    for name in options.sets:
        cases = json.loads(FILES.get(name, Path(name)).read_text())
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for case, outcome, result in measure(cases, Path(folder) / "root"):
                found.append((case, outcome, result))
                if options.verbose and outcome != "right":
                    used = [(tool["tool_id"], tool["arguments"]) for tool in result.tool_results]
                    shown = (case["phrase"], case["tools"], used, result.response[:160])
                    print(f"{outcome}:", *map(repr, shown), flush=True)
        kinds = dict.fromkeys(case["kind"] for case, _, _ in found)
        counts = Counter((case["kind"], outcome) for case, outcome, _ in found)
        print(f"\n{name}: {len(found)} phrases")
        print(f"{'':28}" + "".join(f"{outcome:>10}" for outcome in OUTCOMES))
        for kind in [*kinds, "all"]:
            row = [
                sum(
                    n for (of, what), n in counts.items() if what == outcome and kind in (of, "all")
                )
                for outcome in OUTCOMES
            ]
            print(f"{kind:28}" + "".join(f"{count:>10}" for count in row))


if __name__ == "__main__":
    main()
