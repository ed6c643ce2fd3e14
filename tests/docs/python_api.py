"""``docs/python.md``: what programs use, with signatures and docstrings, written from the code.

``python -m tests.docs.python_api`` writes it again.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from typing_extensions import override

from remit.runtime import Agent, Conversation, Runtime

PAGE = Path("docs/python.md")
_WIDTH = 90
INTRODUCTION = """\
# The Python API

Every public name of a program that uses agents, as the code documents it. [Agents](agents.md)
teaches how they go together. `RemitError` is the base of all errors; its `next_step` says what to
do. Methods with an async form (`aturn`, `arun`, …) have the same arguments without the leading `a`.
"""
PARTS: dict[str, tuple[str, ...]] = {
    "remit": ("Runtime", "tool", "Tool", "Context", "current_call", "File", "TurnResult",
              "TurnFailedError", "RemitError"),
    "remit.runtime": ("Agent", "Conversation", "Schedule", "TurnEnded"),
    "remit.agents.supervisor": ("Plan", "PlanStep", "TurnContext", "TurnPendingError",
                                "TurnCancelledError", "thread_tools"),
    "remit.agents.workorders": ("TextDelta", "PartialOutput", "ToolStarted", "ToolEnded",
                                "AnswerRejected", "ApprovalNeeded", "Degraded", "TurnResumed",
                                "WorkOrder"),
    "remit.agents": ("ApprovalQueue",),
    "remit.testing": ("ScriptedModel", "RecordedModel", "ToolUse", "RecordChecks", "new_root"),
    "remit.ledger": ("LedgerClient",),
}  # fmt: skip


def page() -> str:
    """The whole page, in plain Markdown."""
    parts = [INTRODUCTION]
    for module, names in PARTS.items():
        place = importlib.import_module(module)
        parts.append(f"\n## `{module}`\n")
        parts += [_entry(name, getattr(place, name)) for name in names]
    return "".join(parts)


def _entry(name: str, value: Any) -> str:
    lines = [f"\n### `{name}`\n\n{_described(name, value)}"]
    if inspect.isclass(value):
        for member, made in vars(value).items():
            if member.startswith("_") or f"a{member}" in vars(value):
                continue  # the async form says it
            raw = made.__func__ if isinstance(made, classmethod | staticmethod) else made
            if inspect.isfunction(raw):
                lines.append(f"\n#### `{name}.{member}`\n\n{_described(member, raw)}")
    return "".join(lines)


def _described(name: str, value: Any) -> str:
    text = inspect.cleandoc(value.__doc__ or "")
    if inspect.isclass(value) and not issubclass(value, BaseException):
        text = re.sub(r"\A\w+\(.*\)\Z", "", text)  # what a dataclass says of itself
    text = re.sub(r":\w+:`~?([^`]*)`", lambda found: found[1].rpartition(".")[2], text)
    text = text.replace("``", "`")
    return f"```text\n{name}{_signature(value)}\n\n{text}\n```\n"


class _Plain(str):
    """An annotation that is shown without quotes."""

    @override
    def __repr__(self) -> str:
        return str(self)


def _signature(value: Any) -> str:
    if value in (Runtime, Agent, Conversation):  # made by methods that have their own entries
        return ""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [
        parameter.replace(annotation=_plain(parameter.annotation))
        for name, parameter in found.parameters.items()
        if name not in ("self", "cls")
    ]
    shown = found.replace(parameters=parameters, return_annotation=_plain(found.return_annotation))
    text = re.sub(r"<[^>]*>", "…", str(shown))
    if len(text) <= _WIDTH:
        return text
    head, _, arrow = text.rpartition(") ->")
    lines = [f"    {re.sub(r'<[^>]*>', '…', str(one))},\n" for one in parameters]
    named = [n for n, one in enumerate(parameters) if one.kind is one.KEYWORD_ONLY]
    if named:
        lines.insert(named[0], "    *,\n")
    return f"(\n{''.join(lines)}){f' ->{arrow}' if head else ''}"


def _plain(annotation: Any) -> Any:
    return _Plain(annotation) if isinstance(annotation, str) else annotation


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
