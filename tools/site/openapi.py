"""The OpenAPI document as a page."""

from __future__ import annotations

import json
from typing import Any

_INTRODUCTION = """\
# OpenAPI

Written from `/api/openapi.json`, which every server gives, without a key; the
{download}`document of this version <../openapi.json>`. [The API](api.md) and
[the server](server.md) say in words what it is for.

Keys go into `Authorization: Bearer` or `x-api-key`.
"""


def page(document: dict[str, Any]) -> str:
    """The whole page, in MyST's Markdown."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            tag = (told.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append(_operation(document, method.upper(), path, told))
    order = ["model calls", "what providers keep", *sorted(by_tag)]
    parts = [_INTRODUCTION]
    for tag in dict.fromkeys(order):
        parts.append(f"\n## {tag.capitalize()}\n")
        parts += by_tag.get(tag, [])
    return "\n".join(parts)


def _operation(document: dict[str, Any], method: str, path: str, told: dict[str, Any]) -> str:
    lines = [f"\n### `{method} {path}`\n", f"{told['summary']}.\n"]
    if told.get("description", "").rstrip(".") != told["summary"]:
        lines.append(told.get("description", "") + "\n")
    rows = [_parameter(each) for each in told.get("parameters", ())]
    body = told.get("requestBody", {}).get("content", {})
    for kind, about in body.items():
        schema = _resolved(document, about.get("schema", {}))
        required = schema.get("required", ())
        rows += [
            f"| `{name}` | body{', required' if name in required else ''} | {_about(each)} |"
            for name, each in schema.get("properties", {}).items()
        ]
        lines.append(f"Body: `{kind}`.\n")
    if rows:
        lines += ["| name | in | meaning |\n|---|---|---|", *rows, ""]
    for about in body.values():
        if "example" in about:
            lines.append(_json(about["example"]))
    answers = ", ".join(
        f"`{status}` {_said(about)}" for status, about in sorted(told["responses"].items())
    )
    lines.append(f"Answers: {answers}.\n")
    return "\n".join(lines)


def _said(about: dict[str, Any]) -> str:
    return str(about.get("description", "")).rstrip(".").replace("\n", " ")


def _parameter(each: dict[str, Any]) -> str:
    needed = ", required" if each.get("required") else ""
    return f"| `{each['name']}` | {each['in']}{needed} | {_about(each)} |"


def _about(each: dict[str, Any]) -> str:
    text = each.get("description") or each.get("title") or each.get("type") or ""
    return str(text).replace("|", "\\|").replace("\n", " ")


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found: dict[str, Any] = document.get("components", {}).get("schemas", {}).get(name, schema)
    return found


def _json(value: Any) -> str:
    return f"```json\n{json.dumps(value, indent=1)}\n```\n"
