"""Full-text search over content.

The index is the engine's (SQLite FTS5, PostgreSQL ``tsvector``). Words are defined here, so that a
search finds the same on both. Content is indexed at the next search, so writers have no cost.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from remit.kernel.errors import InvalidInputError, RemitError
from remit.ledger.contents import StoredValue
from remit.ledger.entry_reader import PUT_INFO, chunks, info_number, marks
from remit.ledger.errors import LedgerWriteError
from remit.ledger.store import Store, Transaction

Run = Callable[[Callable[[Transaction], Any]], Any]

_BATCH = 200
_MAX_WORDS = 16_383  # PostgreSQL's index has no greater position in a value.
_MAX_WORD_CHARS = 48  # longer runs are data, not words
_MAX_QUERY_WORDS = 100
_INDEXED_TO = "text_indexed_to"
_NOT_A_WORD = re.compile(r"[\W_]+")
_CJK = re.compile(r"([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff])")
_TERM = re.compile(r'"([^"]*)"|(\S+)')


def _words_of(text: str) -> list[str]:
    """Return the words of a text as indexed: case-folded, without punctuation.

    CJK characters are words of their own. Runs of over 48 letters or digits are data, not words.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = _NOT_A_WORD.sub(" ", _CJK.sub(r" \1 ", folded)).split()
    return [word for word in words if len(word) <= _MAX_WORD_CHARS]


class TextIndex:
    """The text index of a ledger's database, or of a segment's.

    Content is indexed at the next search (:meth:`catch_up`), not when it is written. Content leaves
    the index before its rows are deleted (:meth:`forget`). Of a value the first 16,383 words of at
    most 48 characters are indexed. ``text_indexed_to`` in ``ledger_info`` is the greatest indexed
    content id.

    Args:
        store: the store of the ledger.
        run: runs a function in a transaction.
    """

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run

    def expression(self, query: str) -> str:
        """Return the text condition of a :class:`~remit.ledger.store.Filter` for ``query``.

        All words must occur, in any order; words in double quotes one directly after the other, as
        the parts of a word with punctuation inside. Case and punctuation do not matter. Words of
        more than 48 characters are ignored. Nothing is read or indexed.

        Args:
            query: words of a person.

        Raises:
            InvalidInputError: ``query`` contains no word, or more than 100.
        """
        terms = [_words_of(quoted or plain) for quoted, plain in _TERM.findall(query)]
        terms = [words for words in terms if words]
        if sum(map(len, terms)) > _MAX_QUERY_WORDS:
            raise InvalidInputError(f"Search for at most {_MAX_QUERY_WORDS} words at once.")
        if not terms:
            raise InvalidInputError(
                f"There is no word to search for in {query!r}.",
                next_step='Give words, or a "phrase in double quotes".',
            )
        return self._store.search_expression(terms)

    def catch_up(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Index the content written since the last search, in transactions of 200 values; make a
        missing index.

        Values that cannot be read are indexed without words.

        Args:
            progress: called after each transaction with the number of content ids done and their
                total; ``None`` for none.

        Raises:
            LedgerWriteError: content is not indexed, and the ledger cannot be written.
            LedgerClosedError: the ledger is closed.
            LedgerError: the ledger cannot be read, or the call is inside a transaction.
        """
        try:
            self._catch_up(progress)
        except LedgerWriteError as error:
            raise LedgerWriteError(
                "The text index of this ledger is missing or incomplete, and cannot be "
                f"written: {error.message}",
                next_step="Search a writable copy of the ledger. Once the index is complete, the "
                "ledger can be searched read-only.",
            ) from error

    def _catch_up(self, progress: Callable[[int, int], None] | None) -> None:
        rows = self._store.select("SELECT max(content_id) FROM contents")
        total = rows[0][0] or 0
        if not self._store.has_text_index():
            self._run(lambda tx: self._store.index_texts(tx, ()))
        done = self._done(self._store.select)
        start = done
        while done < total:
            done = self._run(self._index_some)
            if progress is not None:
                progress(min(done, total) - start, total - start)

    def forget(self, tx: Transaction, content_ids: list[int], *, merge: bool = True) -> None:
        """Remove values from the index before their rows are deleted, inside a transaction.

        Without an index, nothing is done. Values that were not indexed yet are ignored. LedgerError
        is raised if the database cannot be read outside the transaction.

        Args:
            tx: the transaction that deletes the rows.
            content_ids: ids of the values.
            merge: True to remove the words from SQLite's file too; else the caller calls
                :meth:`merge` later. On PostgreSQL only a compaction removes them.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        if not self._store.has_text_index():
            return
        done = self._done(tx.execute)
        indexed = [content_id for content_id in content_ids if content_id <= done]
        for chunk in chunks(indexed):
            rows = tx.execute(
                "SELECT content_id, codec, value FROM contents "
                f"WHERE content_id IN ({marks(chunk)})",
                chunk,
            )
            texts = [(one, _indexed(codec, value)) for one, codec, value in rows]
            self._store.unindex_texts(tx, texts, merge=False)
        if merge and indexed:
            self.merge(tx)

    def merge(self, tx: Transaction) -> None:
        """Remove the words of forgotten values from SQLite's file, inside a transaction.

        Does nothing if there is no index, and on PostgreSQL, where a compaction removes them.

        Args:
            tx: the transaction.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        if self._store.has_text_index():
            self._store.unindex_texts(tx, (), merge=True)

    def lower_mark(self, tx: Transaction) -> None:
        """Lower the indexed extent to the greatest content id, as ids of deleted rows may be
        reused.

        Nothing changes if the extent is not greater.

        Args:
            tx: the transaction that deleted the rows.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        rows = tx.execute("SELECT max(content_id) FROM contents")
        greatest = rows[0][0] or 0
        if self._done(tx.execute) > greatest:
            tx.execute(PUT_INFO, (_INDEXED_TO, str(greatest)))

    def _index_some(self, tx: Transaction) -> int:
        done = self._done(tx.execute)
        rows = tx.execute(
            "SELECT content_id, codec, value FROM contents WHERE content_id > ? "
            f"ORDER BY content_id LIMIT {_BATCH}",
            (done,),
        )
        if not rows:
            return 1 << 62
        self._store.index_texts(tx, [(row[0], _indexed(row[1], row[2])) for row in rows])
        done = int(rows[-1][0])
        tx.execute(PUT_INFO, (_INDEXED_TO, str(done)))
        return done

    @staticmethod
    def _done(execute: Callable[..., list[tuple[Any, ...]]]) -> int:
        return info_number(execute, _INDEXED_TO)


def _indexed(codec: str, value: Any) -> str:
    """Return the words of a stored value; empty if it cannot be read."""
    try:
        decoded = StoredValue(codec, value).decode()
    except RemitError:
        return ""
    return " ".join(_words_of("\n".join(texts_in(decoded)))[:_MAX_WORDS])


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a content value, at any depth, in order; object keys are not yielded.

    Args:
        value: a JSON value.
    """
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(reversed(item.values()))
        elif isinstance(item, list):
            stack.extend(reversed(item))
