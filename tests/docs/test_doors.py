"""The check that rooms are used through their doors."""

from __future__ import annotations

from pathlib import Path

from tools.doors import Checkout

_ROOT = Path(__file__).parents[2]


def test_every_room_is_used_through_its_door() -> None:
    assert list(Checkout(_ROOT).problems()) == []


def test_a_breach_is_named_with_its_line_and_the_door_to_use(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[tool.remit.doors]\nlow = ["shelf"]\nattic = []\n',
        "src/remit/__init__.py": "",
        "src/remit/kernel/__init__.py": '"""The kernel."""',
        "src/remit/kernel/files.py": "x = 1",
        "src/remit/low/__init__.py": (
            '"""The lower room."""\n'
            "if TYPE_CHECKING:\n    from remit.low.inner import late, typed\nelse:\n"
            '    __getattr__ = lazy_names(__name__, {"inner": "late"})\n'
            '__all__ = ["late"]\n'
        ),
        "src/remit/low/inner.py": "from remit.low import late",
        "src/remit/low/shelf/__init__.py": '__all__ = ["Shelf"]',
        "src/remit/low/shelf/board.py": "class Shelf: ...",
        "src/remit/high/__init__.py": "",
        "src/remit/high/user.py": (
            "from remit.kernel.files import x\n"
            "from remit.low import late, shelf\n"
            "from remit.low.shelf import Shelf\n"
            "from remit.low.shelf.board import Shelf\n"
            "def use():\n    from remit.low.inner import late, unknown\n"
            "    import remit.low.inner\n"
        ),
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    doors = "remit.low, remit.low.shelf."
    user = "src/remit/high/user.py"
    assert list(Checkout(tmp_path).problems()) == [
        "pyproject.toml: [tool.remit.doors] lists attic, which is no room.",
        "src/remit/high/__init__.py:1: the room's docstring has 0 lines; it needs 1 to 25.",
        f"{user}:4: remit.low.shelf.board is private to low; import Shelf from remit.low.shelf.",
        f"{user}:6: remit.low.inner is private to low; import late from remit.low.",
        f"{user}:6: remit.low.inner is private to low; export unknown from one of {doors}",
        f"{user}:7: remit.low.inner is private to low; export its names from one of {doors}",
        "src/remit/low/__init__.py:2: typed of remit.low.inner is imported for types "
        "or named for lazy_names, but not both.",
        "src/remit/low/inner.py:1: late comes through the door of its own room; "
        "import it from the module that defines it.",
    ]
