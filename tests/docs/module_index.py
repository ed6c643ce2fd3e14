"""The index of modules in ``docs/architecture.md``: each one's docstring, its public names.

``python -m tests.docs.module_index`` writes it again, and ``docs/python.md`` too.
"""

from __future__ import annotations

import ast
from pathlib import Path

PAGE = Path("docs/architecture.md")
HEADING = "## Every module\n"
SOURCE = Path("src/remit")


def index() -> str:
    """The section: a list of modules for each folder that has any."""
    parts = [HEADING]
    for folder in sorted(path for path in SOURCE.rglob("*") if path.is_dir()):
        modules = sorted(set(folder.glob("*.py")) - {folder / "__init__.py"})
        lines = [_line(module) for module in modules]
        if lines and "assets" not in folder.parts:
            parts.append(f"\n**`{folder.relative_to(SOURCE)}`**\n\n" + "".join(lines))
    return "".join(parts)


def _line(module: Path) -> str:
    tree = ast.parse(module.read_text("utf-8"))
    documentation = (ast.get_docstring(tree) or "").split("\n\n")[0]
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names = dict.fromkeys(node.name for node in tree.body if isinstance(node, defined))
    public = ", ".join(f"`{name}`" for name in names if not name.startswith("_"))
    text = " ".join(documentation.split()).replace("``", "`")
    return f"- `{module.name}`: {text}{public and f' *{public}*'}\n"


def without_index(page: str) -> str:
    """The page up to the index, which is its last section."""
    return page.partition(HEADING)[0]


if __name__ == "__main__":
    from tests.docs import python_api  # imports all of Remit

    PAGE.write_text(without_index(PAGE.read_text("utf-8")) + index(), "utf-8")
    python_api.PAGE.write_text(python_api.page(), "utf-8")
