"""``docs/python.md``: what programs use, with signatures and docstrings, written from the code.

``python -m tests.docs.python_api`` writes it again.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from typing_extensions import override

from remit import Tool
from remit.runtime import Agent, Conversation, Runtime

PAGE = Path("docs/python.md")
_WIDTH = 90
INTRODUCTION = """\
# The Python API

This page lists the public names for programs that use agents. `help(name)` prints a name's full
description, with arguments and errors. For a guide, see [Agents](agents.md). `RemitError` is the
base class of all errors; its `next_step` says what to do. Each method with an async form, such as
`aturn`, also exists in a blocking form, such as `turn`, with the same arguments.
"""
# Public methods that Remit's own rooms call, and programs have no need of.
_FOR_REMIT = {
    "record_settings", "gate_context", "allow_without_limits", "of_package", "sub_session",
    "keyed_session", "aanswer", "within", "giving", "with_input", "moved_to", "announce",
    "person_behind", "permit", "records_where", "require_whole", "prepared", "canonical", "lacks",
    "definition", "capabilities", "asend", "attached",
}  # fmt: skip
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
    "remit.testing": ("ScriptedModel", "RecordedModel", "ReplayedRun", "ToolUse", "RecordChecks",
                      "new_root"),
    "remit.ledger": ("LedgerClient",),
}  # fmt: skip


def page() -> str:
    """Return the whole page, in plain Markdown."""
    parts = [INTRODUCTION]
    for module, names in PARTS.items():
        place = importlib.import_module(module)
        parts.append(f"\n## `{module}`\n")
        parts += [_entry(name, getattr(place, name)) for name in names]
    return "".join(parts)


def _entry(name: str, value: Any) -> str:
    made = _signature(value)
    text = f"{_summary(value)}\n"
    if made and (inspect.isfunction(value) or dataclasses.is_dataclass(value)):
        text = f"{name}{made}\n    {text}"
    members = [
        f"{member}{_signature(raw)}\n    {_summary(raw)}\n"
        for member, made in vars(value).items()
        if inspect.isclass(value) and not member.startswith("_") and f"a{member}" not in vars(value)
        if member not in _FOR_REMIT
        if inspect.isfunction(raw := getattr(made, "__func__", made))
    ]
    if members:
        text += f"\n{''.join(members)}"
    return f"\n### `{name}`\n\n```text\n{text}```\n"


def _summary(value: Any) -> str:
    """Return the first paragraph of a docstring, on one line."""
    text = inspect.cleandoc(value.__doc__ or "").partition("\n\n")[0]
    if inspect.isclass(value) and not issubclass(value, BaseException):
        text = re.sub(r"\A\w+\(.*\)\Z", "", text, flags=re.DOTALL)  # written by dataclasses
    text = re.sub(r":\w+:`~?(?:[a-z_]+\.)*([^`]*)`", r"`\1`", text)
    return " ".join(text.replace("``", "`").split())


class _Plain(str):
    """An annotation that is shown without quotes."""

    @override
    def __repr__(self) -> str:
        return str(self)


def _signature(value: Any) -> str:
    if value in (Runtime, Agent, Conversation, Tool):  # other entries show how to make them
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
