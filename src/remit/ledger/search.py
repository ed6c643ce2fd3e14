"""Full-text search over content, and the texts and quotes in content.

The index is the engine's (SQLite FTS5, PostgreSQL ``tsvector``). Words are defined here, so that a
search finds the same on both. Content is indexed at the next search, so writers have no cost.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.json_text import load_exact
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
# A value that quotes an erased text of at least this length is erased with it.
_QUOTE_CHARS = 16
# What stands in every call and answer of a dialect, and quotes no person.
_PROTOCOL = frozenset({"id", "include", "model", "object", "previous_response_id", "type"})
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


def texts_in(value: Any, but: Collection[str] = (), *, with_keys: bool = False) -> Iterator[str]:
    """Yield every text in a content value, at any depth, in order.

    Args:
        value: a JSON value.
        but: names of members that are skipped with everything in them, unless their value is an
            object; empty skips none.
        with_keys: True to yield the keys of objects too.
    """
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            inside: Iterable[Any] = item.values()
            if with_keys:
                yield from item
            if but:
                inside = [v for k, v in item.items() if k not in but or isinstance(v, dict)]
            stack.extend(reversed(list(inside)))
        elif isinstance(item, list):
            stack.extend(reversed(item))


def quotable(value: StoredValue) -> set[str]:
    """Return the texts of a value whose quotes in other values are erased too.

    Texts in JSON within a text count. Texts of fewer than 16 characters are left out, and so are
    members of objects that name a part of the protocol, such as ``id``, ``model`` and ``type``.

    Args:
        value: the stored value that is erased.

    Raises:
        LedgerFormatError: the value cannot be read.
    """
    return {text for text in _texts(value, _PROTOCOL) if len(text) >= _QUOTE_CHARS}


def quotes(value: StoredValue, texts: Collection[str]) -> bool:
    """Return True if a text in a value, or in JSON within it, contains one of ``texts`` unchanged.

    Case and blanks count. Keys of objects are texts, and so are the joined pieces of a stream.

    Args:
        value: a stored value.
        texts: the texts, of :func:`quotable`.

    Raises:
        LedgerFormatError: the value cannot be read.
    """
    return any(text in candidate for candidate in _texts(value, is_searched=True) for text in texts)


def _texts(
    value: StoredValue, but: Collection[str] = (), *, is_searched: bool = False
) -> Iterator[str]:
    """Yield the texts of a stored value, and of JSON within texts, such as tool arguments.

    If ``is_searched``, keys of objects and the joined pieces of event streams are yielded too.
    """
    pending = [value.decode()]
    while pending:
        for text in texts_in(pending.pop(), but, with_keys=is_searched):
            yield text
            if text.lstrip()[:1] in ("{", "[", '"'):
                with contextlib.suppress(ValueError):
                    pending.append(load_exact(text.encode("utf-8", "replace")))
            elif is_searched and text.startswith(("data:", "event:", ":")):
                pending.append(_pieces(text))


def _pieces(stream: str) -> list[str]:
    """Return the texts of an event stream's JSON, joined by the name of their member.

    A provider splits an answer anywhere, so a quoted text is in no single event.
    """
    joined: dict[str, list[str]] = {}
    for line in stream.split("\n"):
        stack: list[tuple[str, Any]] = []
        if line.startswith("data:"):
            with contextlib.suppress(ValueError):
                stack.append(("", load_exact(line[5:].encode("utf-8", "replace"))))
        while stack:
            name, item = stack.pop()
            if isinstance(item, str):
                joined.setdefault(name, []).append(item)
            elif isinstance(item, dict):
                stack.extend(reversed(item.items()))
            elif isinstance(item, list):
                stack.extend((name, one) for one in reversed(item))
    return ["".join(texts) for texts in joined.values()]
