"""``python -m tests.docs.served_paths``: rewrite the list of paths in ``docs/pass-through.md``."""

from __future__ import annotations

from pathlib import Path

from remit.providers.wire import PASSED_PATHS

PAGE = Path(__file__).parents[2] / "docs" / "pass-through.md"
_BEGIN, _END = "<!-- served paths -->\n", "<!-- /served paths -->"
_NAMES = {"openai": "OpenAI", "anthropic": "Anthropic"}


def listing() -> str:
    """Return the list that follows from the code."""
    lines: list[str] = []
    for dialect, name in _NAMES.items():
        rows = [row for row in PASSED_PATHS if row.dialect == dialect]
        lines += [f"Remit serves {len(rows)} requests of {name}'s API:", "", "```text"]
        for path in dict.fromkeys(row.template for row in rows):
            methods = (
                row.method if row.is_free else f"${row.method}"
                for row in sorted(rows, key=lambda row: not row.is_free)
                if row.template == path
            )
            lines.append(f"{path:56} {' '.join(methods)}")
        lines += ["```", ""]
    return "\n".join(lines)


def with_list(page: str) -> str:
    """Return a page with the list as it should be."""
    head, rest = page.split(_BEGIN)
    return f"{head}{_BEGIN}{listing()}{_END}{rest.split(_END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_list(PAGE.read_text()))
    print(f"{len(PASSED_PATHS)} requests are passed on")
