"""``python -m tests.docs.served_paths``: rewrite the table of paths in ``docs/pass-through.md``."""

from __future__ import annotations

from pathlib import Path

from remit.providers.wire import PASSED_PATHS

PAGE = Path(__file__).parents[2] / "docs" / "pass-through.md"
_BEGIN, _END = "<!-- served paths -->\n", "<!-- /served paths -->"
_NAMES = {"openai": "OpenAI", "anthropic": "Anthropic"}


def table() -> str:
    """Return the table that follows from the code."""
    lines: list[str] = []
    for dialect, name in _NAMES.items():
        rows = [row for row in PASSED_PATHS if row.dialect == dialect]
        lines += [
            f"{name}, {len(rows)} requests:",
            "",
            "| path | free | no price |",
            "|---|---|---|",
        ]
        for path in dict.fromkeys(row.template for row in rows):
            of_path = [row for row in rows if row.template == path]
            free = ", ".join(f"`{row.method}`" for row in of_path if row.is_free)
            other = ", ".join(f"`{row.method}`" for row in of_path if not row.is_free)
            lines.append(f"| `{path}` | {free} | {other} |")
        lines.append("")
    return "\n".join(lines)


def with_table(page: str) -> str:
    """Return a page with the table as it should be."""
    head, rest = page.split(_BEGIN)
    return f"{head}{_BEGIN}{table()}{_END}{rest.split(_END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
    print(f"{len(PASSED_PATHS)} requests are passed on")
