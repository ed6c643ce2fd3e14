"""Circuit breakers, one for each provider and model, shared by all processes of a ledger."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from msgspec import Struct

from remit.gateway.circuit import Circuit, CircuitState, Outcome, circuit_of
from remit.gateway.config import CircuitBreakerConfig
from remit.kernel.errors import RemitError
from remit.ledger import Clock, LedgerClient, Transaction

_log = logging.getLogger("remit.gateway")

_MS_PER_HOUR = 3_600_000
_SOONER = 0.8
_COLUMNS = tuple(field.name for field in fields(Circuit))
_READ = f"SELECT provider_id, model_id, {', '.join(_COLUMNS)} FROM breakers"
_FIND = f"SELECT {', '.join(_COLUMNS)} FROM breakers WHERE provider_id = ? AND model_id = ?"
_PUT = (
    f"INSERT INTO breakers (provider_id, model_id, {', '.join(_COLUMNS)}) "
    f"VALUES (?, ?, {', '.join('?' * len(_COLUMNS))}) ON CONFLICT (provider_id, model_id) "
    f"DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS)}"
)
_DROP_OLD = "DELETE FROM breakers WHERE open = 0 AND failures = 0 AND changed_at_ms < ?"
# Those that bar the way stay; of the others the closed ones go first.
_DROP_MORE = (
    "DELETE FROM breakers WHERE (provider_id, model_id) IN (SELECT provider_id, model_id "
    "FROM breakers WHERE open = 0 OR opened_at_ms < ? ORDER BY open, changed_at_ms LIMIT ?)"
)
_NEW = Circuit()

_Key = tuple[str, str]
_Ask = Callable[[str], list[tuple[Any, ...]]]


class CircuitBreaker:
    """A view of the circuit breaker of one provider and model.

    The properties read the database if this process's knowledge is older than
    ``CircuitBreakerConfig.poll_s``; if it cannot be read, that is logged and the known state
    counts. In an event loop use :meth:`LLMGateway.circuit` instead.

    Args:
        breakers: the breakers of the ledger.
        key: provider and model.
    """

    def __init__(self, breakers: Breakers, key: _Key) -> None:
        self._breakers = breakers
        self._key = key

    @property
    def state(self) -> CircuitState:
        """The state now. Blocks."""
        self._breakers.look()
        return self._breakers.seen(*self._key)[0]

    @property
    def retry_after_s(self) -> float | None:
        """Seconds until an open circuit may be retried; None if it may be retried now. Blocks."""
        self._breakers.look()
        return self._breakers.seen(*self._key)[1]


class Permit(Struct, eq=False):
    """Permission to make one call, whose result :meth:`report` passes on.

    A permit that is never reported leaves a trial taken until its time is over.

    Attributes:
        answer: called with ``about`` and the outcome; must not wait. None once a result was
            reported.
        about: identifies the call for ``answer``.
        needs_check: True for a permit of :meth:`Breakers.permit`: the transaction that begins the
            call must check that the circuit is still closed.
    """

    answer: Callable[..., None] | None
    about: tuple[Any, ...] = ()
    needs_check: bool = False

    def report(self, outcome: Outcome) -> None:
        """Report the result of the call; a second report is ignored.

        Args:
            outcome: ``ok`` if the provider answered, possibly with a refusal of this request,
                ``bad`` if it failed; ``nothing`` if the call was not made, or says nothing of it.
        """
        answer, self.answer = self.answer, None
        if answer is not None:
            answer(*self.about, outcome)


@dataclass(slots=True)
class _LocalState:
    """The changes that this process made to a circuit.

    Attributes:
        circuit: the circuit after those changes, recorded or not.
        steps: number of changes submitted to the ledger.
        done: number of the latest change that the ledger applied.
        asked: whether a call was made.
    """

    circuit: Circuit
    steps: int = 0
    done: int = 0
    asked: bool = False


class Breakers:
    """The circuit breakers of a ledger.

    A result in one process counts for all.

    The ledger's database has a row for each circuit that failed, until :meth:`prune`. A change
    takes effect in this process at once and is then written to the row. Rows that other processes
    changed are read before a call if the latest read is older than ``poll_s``, and in other
    transactions a little earlier. A success without counted failures causes no extra read or write.
    :meth:`permit` and :meth:`acquire` give permits for calls. Threads may share the object. Making
    it reads the table.

    Args:
        ledger: the ledger whose database contains the rows.
        config: thresholds, and how often to read.
        trial_ms: milliseconds after which an unanswered trial is given to another call.

    Raises:
        LedgerError: the table cannot be read.
    """

    def __init__(self, ledger: LedgerClient, config: CircuitBreakerConfig, trial_ms: int) -> None:
        self._ledger = ledger
        self._config = config
        self._trial_ms = trial_ms
        self._lock = threading.Lock()
        self._local: dict[_Key, _LocalState] = {}
        self._rows: dict[_Key, Circuit] = {}
        self._raw: list[tuple[Any, ...]] = []
        self._looked_at = 0.0
        self._ahead_ms = 0.0  # The shared clock minus this process's monotonic one.
        self._looking: asyncio.Future[None] | None = None
        self._read(ledger.select, ledger)

    def is_closed(self, key: tuple[str, str]) -> bool:
        """Return True if a circuit is known to be closed.

        False if the circuit is open or half open, or if the rows must be read first. Reads nothing.

        Args:
            key: provider and model.
        """
        if self._is_old():
            return False
        with self._lock:
            return not self._circuit(key).open

    def permit(self, provider_id: str, model_id: str) -> Permit | None:
        """Return a permit for one call if the circuit is known to be closed, else None. Reads
        nothing.

        The permit must be reported (:class:`Permit`) and ``needs_check``: the transaction that
        begins the call calls :meth:`is_current`, because the latest read may be too old and the
        call may have waited for its budget.

        Args:
            provider_id: the provider.
            model_id: the model.
        """
        key = (provider_id, model_id)
        with self._lock:
            local = self._local.get(key)
            if key in self._rows:
                circuit = self._circuit(key)
            else:
                circuit = _NEW if local is None else local.circuit
        if circuit.open:
            return None
        return Permit(self._answered, (key, circuit.generation, False), needs_check=True)

    def is_current(self, permit: Permit) -> bool:
        """Return True if the circuit of a permit is closed and was not opened since.

        Uses what this process knows now, without a read.

        Args:
            permit: a permit of :meth:`permit`.
        """
        key, generation = permit.about[:2]
        with self._lock:
            local = None if key in self._rows else self._local.get(key)
            circuit = self._circuit(key) if local is None else local.circuit
        return not circuit.open and circuit.generation == generation

    async def acquire(self, provider_id: str, model_id: str) -> Permit | None:
        """Return a permit for one call now; None if the circuit is open or its trials are taken.

        The permit must be reported (:class:`Permit`). A half-open circuit gives out a limited
        number of trials, each recorded in the database. Reads the database if the latest read is
        too old; if it cannot be read, that is logged and the known rows count.

        Args:
            provider_id: the provider.
            model_id: the model.

        Raises:
            LedgerError: a trial could not be recorded.
            CancelledError: the caller was cancelled; a taken trial is given back.
            RuntimeError: no event loop runs.
        """
        key = (provider_id, model_id)
        await self._look()
        with self._lock:
            before = self._circuit(key)
            if not before.open:
                return Permit(self._answered, (key, before.generation, False))
            # Noted here at once: of all who ask in this process one goes and asks the ledger.
            after = before.tried(self._config, self._now_ms(), self._trial_ms)
            if after is None:
                return None
            local, step, trying = self._submit(key, after, self._try)
        try:
            permit: Permit | None = await trying
            return permit
        except asyncio.CancelledError:  # The shielded attempt has ended by now.
            if trying.done() and trying.exception() is None:
                if (taken := trying.result()) is not None:
                    taken.report("nothing")
                raise
            self._not_tried(local, step, before)
            raise
        except BaseException:
            self._not_tried(local, step, before)
            raise

    def _not_tried(self, local: _LocalState, step: int, before: Circuit) -> None:
        with self._lock:
            local.done = max(local.done, step)
            if local.steps == step:
                local.circuit = before

    async def circuit(self, provider_id: str, model_id: str) -> tuple[CircuitState, float | None]:
        """Return a circuit's state, and the seconds until an open circuit may be retried, otherwise
        None.

        Takes no permit. Reads the database if the latest read is too old; if it cannot be read,
        that is logged and the known rows count.

        Args:
            provider_id: the provider.
            model_id: the model.
        """
        await self._look()
        return self.seen(provider_id, model_id)

    def seen(self, provider_id: str, model_id: str) -> tuple[CircuitState, float | None]:
        """Return the result of :meth:`circuit` as of the latest read; never waits.

        Args:
            provider_id: the provider.
            model_id: the model.
        """
        with self._lock:
            circuit, now = self._circuit((provider_id, model_id)), self._now_ms()
        return circuit.state(self._config, now), circuit.retry_after_s(self._config, now)

    def known(self) -> dict[_Key, CircuitBreaker]:
        """Return the breakers of models that this process called, or that failed in any.

        Blocks.

        The keys are (provider, model). Reads the rows if the latest read is too old; if they cannot
        be read, that is logged and the known rows count.
        """
        self.look()
        with self._lock:
            keys = dict.fromkeys(key for key, local in self._local.items() if local.asked)
            keys.update(dict.fromkeys(self._rows))
        return {key: CircuitBreaker(self, key) for key in keys}

    def prune(self) -> None:
        """Delete the rows of circuits that have been healthy for longer than ``keep_hours``.

        Blocks.

        If more than ``most_rows`` would remain, the oldest excess rows are deleted too, closed
        circuits first. Circuits that bar calls now stay.

        Raises:
            LedgerError: the ledger cannot be read or written.
        """
        self.look()
        now = self._now_ms()
        oldest = now - int(self._config.keep_hours * _MS_PER_HOUR)
        cooled = now - self._config.recovery_timeout_ms
        ((count, first),) = self._ledger.select(
            "SELECT count(*), min(CASE WHEN open = 0 AND failures = 0 THEN changed_at_ms END) "
            "FROM breakers"
        )
        if count <= self._config.most_rows and (first is None or first >= oldest):
            return

        def forget(tx: Transaction) -> None:
            tx.execute(_DROP_OLD, (oldest,))
            more = tx.execute("SELECT count(*) FROM breakers")[0][0] - self._config.most_rows
            if more > 0:
                tx.execute(_DROP_MORE, (cooled, more))

        self._ledger.transact(forget)

    # -- reading -----------------------------------------------------------------------

    def look(self) -> None:
        """Read the changes by other processes unless the latest read is fresh. Blocks.

        If the database cannot be read, log a warning and keep what is known.
        """
        if not self._is_old():
            return
        try:
            self._read(self._ledger.select, self._ledger)
        except RemitError as error:
            self._keep(error)

    async def _look(self) -> None:
        """Do as :meth:`look` without blocking the loop; concurrent callers share one read."""
        if not self._is_old():
            return
        try:
            looking = self._looking
            if looking is None or looking.done() or (
                looking.get_loop() is not asyncio.get_running_loop()
            ):  # fmt: skip
                # In the writer's thread, between writes: the call will need it anyway.
                looking = self._ledger.submit(lambda tx: self._read(tx.execute, tx))
                self._looking = looking
            await looking
        except RemitError as error:
            self._keep(error)

    def refresh(self, tx: Transaction) -> None:
        """Read the changes by other processes in a transaction that is made anyway.

        Nothing is read if the latest read is younger than four fifths of ``poll_s``.

        Args:
            tx: the transaction.

        Raises:
            LedgerError: the database refuses the statement; the transaction then fails.
        """
        if time.monotonic() - self._looked_at > _SOONER * self._config.poll_s:
            self._read(tx.execute, tx)

    def _is_old(self) -> bool:
        return time.monotonic() - self._looked_at > self._config.poll_s

    def _keep(self, error: RemitError) -> None:
        """Log that the rows cannot be read, and treat the known rows as fresh."""
        _log.warning("the circuit breakers of others could not be read: %s", error.message)
        self._looked_at = time.monotonic()

    def _read(self, ask: _Ask, clock: Clock) -> None:
        began = time.monotonic()
        raw = ask(_READ)
        ahead_ms = clock.now_ms - time.monotonic() * 1000
        with self._lock:
            if began < self._looked_at:
                return  # A later read has finished earlier.
            self._looked_at, self._ahead_ms = began, ahead_ms
            if raw != self._raw:
                self._raw = raw
                self._rows = {(row[0], row[1]): circuit_of(row[2:]) for row in raw}

    def _now_ms(self) -> int:
        """Return the shared clock's milliseconds, estimated from the latest read."""
        return int(time.monotonic() * 1000 + self._ahead_ms)

    # -- what this process knows and does; with the lock held --------------------------------

    def _circuit(self, key: _Key) -> Circuit:
        local, row = self._local.get(key), self._rows.get(key)
        if local is None:
            return row or _NEW
        if row is not None and local.steps == local.done and row.changed_at_ms > (
            local.circuit.changed_at_ms
        ):  # fmt: skip
            local.circuit = row
        return local.circuit

    def _submit(
        self,
        key: _Key,
        circuit: Circuit,
        call: Callable[[_Key, _LocalState, int, Transaction], Any],
    ) -> tuple[_LocalState, int, asyncio.Future[Any]]:
        """Change a circuit in memory and submit ``call``, which records the change.

        Raises:
            LedgerClosedError, RuntimeError: the ledger is closed or no loop runs; nothing was
            changed.
        """
        local = self._local_state(key)
        step = local.steps + 1
        future = self._ledger.submit(functools.partial(call, key, local, step))
        local.circuit, local.steps = circuit, step
        return local, step, future

    def _local_state(self, key: _Key) -> _LocalState:
        local = self._local.get(key)
        if local is None:
            if len(self._local) >= self._config.most_rows:
                # Clients name models. Half of the oldest go, but for those in which something is.
                for name in list(self._local)[: self._config.most_rows // 2 + 1]:
                    old = self._local[name]
                    row = self._rows.get(name, _NEW)
                    is_known = old.circuit.is_clean or row == old.circuit
                    if is_known and old.steps == old.done:
                        del self._local[name]
            local = self._local[key] = _LocalState(self._rows.get(key, _NEW))
        return local

    def _answered(self, key: _Key, generation: int, noted: bool, outcome: Outcome) -> None:
        """Apply the result of a call in memory, and submit it to the ledger if the row changes."""
        with self._lock:
            local = self._local.get(key)
            if outcome != "nothing" and (local is None or not local.asked):
                local = self._local_state(key)
                local.asked = True
            before = self._circuit(key) if local is None or key in self._rows else local.circuit
            if outcome == "ok" and not before.open and before.failures == 0 and not noted:
                return

            def change(circuit: Circuit, now_ms: int) -> Circuit:
                return circuit.answered(self._config, generation, outcome, now_ms)

            after = change(before, self._now_ms())
            if after is before and not noted:
                return
            try:
                local, step, future = self._submit(
                    key, after, functools.partial(self._change, change)
                )
            except (RemitError, RuntimeError) as error:  # the ledger is closed, or the loop is
                self._local_state(key).circuit = after
                _log.debug("a change of a circuit breaker stays in this process: %s", error)
                return
        future.add_done_callback(functools.partial(self._recorded, local, step))

    def _recorded(self, local: _LocalState, step: int, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.warning("a change of a circuit breaker was not recorded: %s", error)
            with self._lock:
                local.done = max(local.done, step)

    # -- in the writer's thread --------------------------------------------------------

    def _try(self, key: _Key, local: _LocalState, step: int, tx: Transaction) -> Permit | None:
        """Take a trial of the current row. Return a permit, also if the circuit was closed, else
        None.
        """
        may = False

        def take(circuit: Circuit, now_ms: int) -> Circuit:
            nonlocal may
            after = circuit.tried(self._config, now_ms, self._trial_ms)
            may = after is not None or not circuit.open
            return after or circuit

        circuit = self._change(take, key, local, step, tx)
        return Permit(self._answered, (key, circuit.generation, True)) if may else None

    def _change(
        self,
        change: Callable[[Circuit, int], Circuit],
        key: _Key,
        local: _LocalState,
        step: int,
        tx: Transaction,
    ) -> Circuit:
        rows = tx.execute(_FIND, key)
        before = circuit_of(rows[0]) if rows else _NEW
        after = change(before, tx.now_ms)
        if after is not before:
            tx.execute(_PUT, (*key, *(int(getattr(after, name)) for name in _COLUMNS)))
        with self._lock:
            local.done = max(local.done, step)
            if local.steps == step:  # A later step is pending; its state is newer.
                local.circuit = after
        return after
