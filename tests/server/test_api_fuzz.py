"""The API keeps to its own OpenAPI, whatever is sent to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from remit.agents.sessions import SessionManager
from remit.gateway.auth import AuthLimits, KeyStore
from remit.runtime import Runtime
from remit.server.api import api_application
from remit.server.extensions import Authenticator
from tests.support.roots import new_root
from tests.support.soak import is_soak, sample
from tests.support.stores import conversation

if TYPE_CHECKING:  # Its import takes over a second, which each process of a run would spend.
    from schemathesis import Case


@dataclass
class Served:
    app: Any
    key: str
    runtime: Runtime

    def each(self, examples: int, check: Callable[[Case], None]) -> None:
        """Check right and wrong requests to a sample of the operations that the API documents."""
        import schemathesis

        document = schemathesis.openapi.from_asgi("/api/openapi.json", self.app)
        document = document.include(path_regex="^/api/")
        operations = [found.ok() for found in document.get_all_operations()]
        assert len(operations) > 15
        for operation in sample(operations, 6):
            for mode in map(schemathesis.GenerationMode, ("positive", "negative")):

                @given(case=operation.as_strategy(generation_mode=mode))
                @settings(
                    max_examples=examples, deadline=None, database=None,
                    suppress_health_check=list(HealthCheck),
                )  # fmt: skip
                def run(case: Case) -> None:
                    check(case)

                run()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A root with a conversation, model calls and keys in it."""
    with Runtime.open(new_root(tmp_path_factory.mktemp("api") / "root")) as runtime:
        session = SessionManager(runtime.ledger, "SES-00000001")
        session.start()
        asyncio.run(session.aadd_turn("hello", "good day"))
        conversation(runtime.ledger, "SES-00000001", 3)
        with KeyStore(runtime.ledger, AuthLimits(0.5, 5.0, 60.0)) as keys:
            app = api_application(runtime, keys, Authenticator(keys, "PRC-PASSTHROUGH-001"))
            yield Served(app, keys.create("fuzz", role="operator").key, runtime)
        assert runtime.ledger.verify().verified


@pytest.mark.soak
def test_an_operator_never_breaks_it(served: Served) -> None:
    from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

    def check(case: Case) -> None:
        # What no schema can say (a time, a name that is free) has some examples refused.
        response = case.call_and_validate(
            headers={"Authorization": f"Bearer {served.key}"},
            # That each operation asks for a key is the promise of tests/server/test_api.py.
            excluded_checks=[positive_data_acceptance, ignored_auth],
        )
        assert response.status_code != 401
        assert response.status_code < 500

    served.each(12 if is_soak() else 3, check)
