"""The units of one transaction, on any engine: entries, steps in their stages, calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from remit.ledger.appends import Appends, Head
from remit.ledger.errors import LedgerWriteError
from remit.ledger.prepared import Key, Prepared
from remit.ledger.store import Stage, StageOpener, Unit


def prepared_in(units: Sequence[Unit]) -> Iterator[Prepared]:
    """The prepared entries whose values are looked for again."""
    for unit in units:
        for prepared in unit.prepared or getattr(unit.step, "prepared", ()):
            if prepared.keys:
                yield prepared


def keys_of(units: Sequence[Unit]) -> dict[Key, None]:
    """The keys of their values, each once."""
    keys: dict[Key, None] = {}
    for prepared in prepared_in(units):
        keys |= dict.fromkeys(prepared.keys)
    return keys


def _kind_of(opener: StageOpener) -> Any:
    """Return the key that openers share if their stages hold the same rows, such as a method."""
    return getattr(opener, "__func__", opener)


class Batch(Appends):
    """The units of one transaction. Made after it began; :meth:`flush` before it commits."""

    ENGINE_ERRORS: tuple[type[Exception], ...] = ()

    def __init__(self, head: Head, content_keys: frozenset[str], compress_above: int) -> None:
        super().__init__(head, content_keys, compress_above)
        # Of each kind one at a time, as two would not see each other's changes.
        self._stages: dict[StageOpener, Stage] = {}

    @abstractmethod
    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """:meth:`~remit.ledger.store.Transaction.execute_many`."""

    @abstractmethod
    def _savepoint(self, verb: str) -> None:
        """``SAVEPOINT``, ``ROLLBACK TO`` or ``RELEASE``."""

    @abstractmethod
    def _is_lost(self, error: Exception) -> bool:
        """Whether ``error`` ends the whole transaction, not only the unit that raised it."""

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> Iterable[tuple[Any, ...]]:
        """:meth:`~remit.ledger.store.Transaction.ask`."""
        return self.execute(sql, parameters)

    def look_up(self, units: Sequence[Unit]) -> None:
        """Find which values of prepared entries are stored already, in one statement."""
        self._find(keys_of(units))

    def open_stages(self, units: Sequence[Unit]) -> None:
        """Let the steps among ``units`` read their rows, all steps of a kind together."""
        steps: dict[StageOpener, list[Any]] = {}
        for unit in units:
            if unit.opener is not None:
                steps.setdefault(unit.opener, []).append(unit.step)
        for opener, items in steps.items():
            if self._of_kind(opener):
                continue
            try:
                self._stages[opener] = opener(self, items)
            except self.ENGINE_ERRORS:
                raise
            except Exception:  # noqa: BLE001 - each step then opens its own, and gets the error
                self._stages.pop(opener, None)

    def do(self, unit: Unit) -> Any:
        """Run one unit; an error of its own is returned, one of the engine's raised."""
        opener = unit.opener
        if opener is None and (unit.call is not None or len(unit.prepared) != 1):
            return self._do_in_savepoint(unit)
        # A step or a single entry writes nothing before it is sure to succeed.
        try:
            if opener is None:
                return [self._append(unit.prepared[0])]
            return (self._stages.get(opener) or self._open(opener, unit.step)).do(unit.step)
        except self.ENGINE_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001 - raised to the submitter of the unit
            return error

    def _open(self, opener: StageOpener, step: Any) -> Stage:
        for other in self._of_kind(opener):
            self._stages.pop(other).write()  # The new stage reads these rows.
        stage = self._stages[opener] = opener(self, [step])
        return stage

    def _of_kind(self, opener: StageOpener) -> list[StageOpener]:
        kind = _kind_of(opener)
        return [other for other in self._stages if _kind_of(other) == kind]

    def _do_in_savepoint(self, unit: Unit) -> Any:
        self.flush()
        self._stages.clear()  # the call may change what they have read
        before = replace(self.head)
        self._savepoint("SAVEPOINT")
        try:
            if unit.call is None:
                result: Any = [self._append(prepared) for prepared in unit.prepared]
            else:
                result = unit.call(self)
            self.flush()
            self._savepoint("RELEASE")  # A pipelined statement may be refused only now.
        except Exception as error:
            if self._is_lost(error):
                raise
            for rows in self._rows.values():
                rows.clear()
            self._savepoint("ROLLBACK TO")
            self.head = before
            self._known.clear()  # looked up again
            self._steps.clear()
            result = error
            if isinstance(error, self.ENGINE_ERRORS):  # the same to callers on every engine
                result = LedgerWriteError(
                    f"A statement of the transaction was refused: {error}.",
                    next_step="Nothing of the transaction was recorded. Fix the statement.",
                )
                result.__cause__ = error
            self._savepoint("RELEASE")
        return result

    @override
    def flush(self) -> None:
        for stage in self._stages.values():
            stage.write()
        if collected := [(table, rows) for table, rows in self._rows.items() if rows]:
            self._insert_all(collected)
            for _, rows in collected:
                rows.clear()
