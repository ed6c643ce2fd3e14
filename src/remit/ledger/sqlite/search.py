"""The text index of the embedded store: FTS5 without a copy of the texts."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["CREATE_INDEX", "search_expression"]

CREATE_INDEX = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS content_search USING fts5"
    "(text, content='', tokenize='unicode61 remove_diacritics 0')"
)
"""Made with the first search: who never searches pays nothing."""


def search_expression(terms: Sequence[Sequence[str]]) -> str:
    """An FTS5 query for all ``terms``, each a phrase of words without quotes in them."""
    return " AND ".join('"' + " ".join(words) + '"' for words in terms)
