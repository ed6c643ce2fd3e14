"""Errors cross processes and are copied, whatever arguments their classes take."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from remit import RemitError, TurnFailedError
from remit.agents.supervisor import TurnPendingError
from remit.kernel.errors import InvalidInputError
from remit.providers import ProviderError

ERRORS = [
    RemitError("It broke.", next_step="Mend it."),
    InvalidInputError("Wrong."),
    TurnFailedError("budget_exhausted", "no money"),
    TurnPendingError(("LED-00000001", "LED-00000002")),
    ProviderError("TIMEOUT", "too slow", True, retry_after_s=3.0, status=504),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_copy_is_the_same_error(error: RemitError) -> None:
    error.add_note("during the night")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))


def _fail() -> None:
    raise TurnFailedError("timeout", "60 s")


def test_an_error_of_another_process_arrives() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(TurnFailedError, match="60 s"),
    ):
        pool.submit(_fail).result()
