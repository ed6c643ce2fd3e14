"""The page on paths without a model call lists every path."""

from __future__ import annotations

from tests.docs.served_paths import PAGE, with_list


def test_the_page_lists_the_served_paths() -> None:
    page = PAGE.read_text()
    assert with_list(page) == page, "run python -m tests.docs.served_paths"
