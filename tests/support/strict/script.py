"""What the strict provider answers: decided by the last user text and the tools on offer.

Orders in the text come first, several in a row are all followed:

- ``[[call NAME {"json": 1}]]``: a tool call, while no result follows the text
- ``[[say WORDS]]``, ``[[think]]``, ``[[cite]]``, ``[[refuse]]``, ``[[long]]``

Then what is known of other people's programs (files that agents are told to make, formats that
frameworks ask for), then tools that are forced or named, then structured output, then a sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Call", "Part", "Refusal", "Text", "Thinking", "Turn", "answer", "instance"]


@dataclass(frozen=True)
class Text:
    """Words, perhaps from a document: ``cited`` is what was quoted."""

    text: str
    cited: str = ""


@dataclass(frozen=True)
class Thinking:
    """What the model thought; the signature is of what it says."""

    text: str


@dataclass(frozen=True)
class Call:
    """A tool call; the arguments of a tool without a schema are text."""

    name: str
    arguments: dict[str, Any] | str


@dataclass(frozen=True)
class Refusal:
    """The model's own refusal."""

    text: str


Part = Text | Thinking | Call | Refusal


@dataclass
class Turn:
    """What a request asks for, whatever the dialect.

    ``tools`` maps names to JSON schemas (None: free text); ``choice`` is ``auto``, ``none``,
    ``any`` or a tool's name; ``schema`` is that of structured output, ``{}`` for any JSON.
    """

    text: str = ""
    system: str = ""
    tools: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    choice: str = "auto"
    parallel: bool = True
    schema: dict[str, Any] | None = None
    results: list[str] = field(default_factory=list)
    thinking: bool = False


_ORDER = re.compile(r"\[\[(call|say|think|cite|refuse|long)(?: (.*?))?\]\]", re.DOTALL)
_FILE = re.compile(r"[Mm]ake the file (\S+) that says ([A-Za-z ]+)")
_THOUGHT = Thinking("The question is short, and so is the answer.")
_FEW_TOOLS = 5


def answer(turn: Turn) -> list[Part]:
    """The answer to a turn, the same for the same turn."""
    orders = _ORDER.findall(turn.text)
    parts: list[Part] = [_THOUGHT] if turn.thinking or ("think", "") in orders else []
    if orders:
        return parts + (_follow(orders, turn) or [_closing(turn)])
    for rule in _PROGRAMS:
        if (found := rule(turn)) is not None:
            return parts + found
    if name := _tool(turn):
        return [*parts, _call(turn, name)]
    if turn.schema is not None:
        return [*parts, Text(json.dumps(instance(turn.schema, turn.text), ensure_ascii=False))]
    return [*parts, _closing(turn)]


def _closing(turn: Turn) -> Text:
    if turn.results:
        return Text("The tools said: " + "; ".join(turn.results))
    return Text("Hello from the strict provider, with an ä, a 漢 and an 🙂.")


def _follow(orders: list[tuple[str, str]], turn: Turn) -> list[Part]:
    parts: list[Part] = []
    for verb, rest in orders:
        if verb == "call" and not turn.results:
            name, _, arguments = rest.partition(" ")
            free = turn.tools.get(name, {}) is None
            parts.append(Call(name, arguments if free else json.loads(arguments or "{}")))
        elif verb == "say":
            parts.append(Text(rest))
        elif verb == "long":
            parts.append(Text(" ".join(f"word{i}" for i in range(400))))
        elif verb == "cite":
            parts += [Text("As it is written: "), Text("the grass is green", "The grass is green.")]
        elif verb == "refuse":
            parts.append(Refusal("I can't help with that."))
    if turn.schema is not None and not parts and not turn.results:
        parts.append(Text(json.dumps(instance(turn.schema, turn.text), ensure_ascii=False)))
    calls = [part for part in parts if isinstance(part, Call)]
    if not turn.parallel:
        parts = [part for part in parts if part not in calls[1:]]
    return parts


def _tool(turn: Turn) -> str | None:
    if not turn.tools or turn.choice == "none":
        return None
    if turn.choice not in ("auto", "any"):
        return turn.choice
    if turn.results and turn.choice == "auto":
        return None
    text = turn.text.lower()
    named = [name for name in turn.tools if name.lower() in text]
    if named:
        return max(named, key=len)
    if turn.choice == "any":
        return next(iter(turn.tools))
    if len(turn.tools) <= _FEW_TOOLS:
        for name in turn.tools:
            if any(len(word) > 3 and word in text for word in re.split(r"\W|_", name.lower())):
                return name
    return None


def _call(turn: Turn, name: str) -> Call:
    schema = turn.tools.get(name)
    return Call(name, "free text" if schema is None else instance(schema, turn.text))


def instance(schema: dict[str, Any], text: str) -> Any:
    """A value of a JSON schema: its numbers and foreign words are those of a text."""
    numbers = [int(each) for each in re.findall(r"-?\d+", text)]
    foreign = re.findall(r"[^\x00-\x7f]{2,}", text)

    def make(node: Any, name: str, depth: int) -> Any:
        if not isinstance(node, dict) or depth > 12:
            return None
        if "$ref" in node:
            target: Any = schema
            for step in node["$ref"].removeprefix("#").strip("/").split("/"):
                target = target.get(step, {}) if step else target
            return make(target, name, depth + 1)
        if "const" in node:
            return node["const"]
        if "enum" in node:
            return node["enum"][0]
        for union in ("anyOf", "oneOf", "allOf"):
            if options := [one for one in node.get(union, ()) if one.get("type") != "null"]:
                return make(options[0], name, depth + 1)
        kind = node.get("type")
        kind = next((k for k in kind if k != "null"), None) if isinstance(kind, list) else kind
        if kind == "object" or (kind is None and "properties" in node):
            fields = node.get("properties") or {}
            return {key: make(value, key, depth + 1) for key, value in fields.items()}
        if kind == "array":
            return [make(node.get("items", {}), name, depth + 1)] * max(1, node.get("minItems", 1))
        if kind in ("integer", "number"):
            return numbers.pop(0) if numbers else node.get("minimum", 1)
        if kind == "boolean":
            return True
        if kind == "null":
            return None
        if node.get("format") == "date":
            return "2026-01-02"
        if node.get("format") == "date-time":
            return "2026-01-02T03:04:05Z"
        return foreign[0] if foreign else f"the {name or 'value'}"

    if not schema:
        keys = re.findall(r"'(\w+)'", text) or ["answer"]
        return {key: f"the {key}" for key in keys}
    return make(schema, "", 0)


# -- what other people's programs want to hear ---------------------------------------------


def _make_file(turn: Turn) -> list[Part] | None:
    """Coding agents: the file is made by whatever tool they brought."""
    if not (match := _FILE.search(turn.text)) or not turn.tools:
        return None
    if turn.results:
        return [Text("The file is made.")]
    path, words = match[1], match[2].strip()
    for name, make in _FILE_TOOLS.items():
        if name in turn.tools:
            return [Text("I make it."), Call(name, make(path, words))]
    return None


_FILE_TOOLS: dict[str, Callable[[str, str], dict[str, Any] | str]] = {
    "Write": lambda path, words: {"file_path": path, "content": words},
    "write": lambda path, words: {"filePath": path, "content": words},
    "write_file": lambda path, words: {"file_path": path, "content": words},
    "exec": lambda path, words: (
        f"text(await tools.exec_command({{cmd: \"printf '%s' '{words}' > {path}\"}}))"
    ),
    "exec_command": lambda path, words: {"cmd": f"printf '%s' '{words}' > {path}"},
    "shell_command": lambda path, words: {"command": f"printf '%s' '{words}' > {path}"},
    "shell": lambda path, words: {"command": ["bash", "-c", f"printf '%s' '{words}' > {path}"]},
    "apply_patch": lambda path, words: (
        f"*** Begin Patch\n*** Add File: {path}\n+{words}\n*** End Patch\n"
    ),
}


def _aider(turn: Turn) -> list[Part] | None:
    if not (match := _FILE.search(turn.text)) or turn.tools:
        return None
    path, words = match[1], match[2].strip()
    if "SEARCH/REPLACE" in turn.system:
        words = f"<<<<<<< SEARCH\n=======\n{words}\n>>>>>>> REPLACE"
    return [Text(f"{path}\n```\n{words}\n```\n")]


def _smolagents(turn: Turn) -> list[Part] | None:
    if "final_answer" not in turn.system + turn.text or "<code>" not in turn.system + turn.text:
        return None
    return [Text('Thought: it is known.\n<code>\nfinal_answer("forty-two")\n</code>')]


def _dspy(turn: Turn) -> list[Part] | None:
    if "[[ ## completed ## ]]" not in turn.system + turn.text:
        return None
    asked = turn.text[turn.text.rfind("Respond with") :]
    names = [n for n in re.findall(r"\[\[ ## (\w+) ## \]\]", asked) if n != "completed"]
    lines = [f"[[ ## {name} ## ]]\nforty-two\n" for name in names]
    return [Text("\n".join([*lines, "[[ ## completed ## ]]"]))]


def _crewai(turn: Turn) -> list[Part] | None:
    if "Final Answer" not in turn.text + turn.system or turn.tools:
        return None
    return [Text("Thought: I now can give a great answer\nFinal Answer: forty-two")]


_PROGRAMS = (_make_file, _aider, _smolagents, _dspy, _crewai)
