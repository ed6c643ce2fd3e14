"""Queries of the embedded store's text index (FTS5)."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["search_expression"]


def search_expression(terms: Sequence[Sequence[str]]) -> str:
    """An FTS5 query for all ``terms``, each a phrase of words without quotes in them."""
    return " AND ".join('"' + " ".join(words) + '"' for words in terms)
