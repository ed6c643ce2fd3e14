"""``python -m tests.server.mcp.doubled ARGUMENTS``: the command line over a stand-in router.

The double has the router's shape and records nothing: what is tested with it is the MCP server.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from remit.cli import main
from remit.kernel.errors import RemitError
from remit.runtime import Runtime

SECRET = "sk-this-is-nobodys-business"


class RouterDouble:
    """Answers with what it was asked.

    The prompt ``slow`` waits, ``block`` holds up its thread, ``big`` is answered at length,
    ``fail`` and ``crash`` raise. The score for a prompt of digits is their number.
    """

    def __init__(self) -> None:
        self.begun = self.cancelled = 0

    async def aroute_text(self, prompt: str, **how: Any) -> dict[str, Any]:
        """See :class:`remit.routing.router.Router`."""
        if prompt == "slow":
            self.begun += 1
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if prompt == "fail":
            raise RemitError("All models failed.", next_step="Look at router_status.")
        if prompt == "crash":
            raise ValueError(f"secret {SECRET}")
        identity = how.pop("identity")
        return {
            "model_id": "m-1",
            "provider_id": "p-1",
            "response": "x" * 1_000_000 if prompt == "big" else f"answer to {prompt}",
            "scores": {"m-1": 0.9},
            "fallback_attempts": 0,
            "latency_ms": 1.0,
            "cost_usd": 0.1,
            "decision_id": "DEC-1",
            "decision_entry_id": "LED-00000000",
            "exchange_entry_id": "LED-00000000",
            "asked": {**how, "identity": identity.name if identity else ""},
        }

    def score_text(self, prompt: str, **how: Any) -> dict[str, Any]:
        """See :class:`remit.routing.router.Router`."""
        if prompt == "block":
            time.sleep(3)
        how.pop("identity")
        scores = {"m-1": int(prompt) if prompt.isdecimal() else 0.9}
        return {"winner": "m-1", "scores": scores, "chain": ["m-1"], "intent": how,
                "rule_version_hash": "rv:sha256:unavailable"}  # fmt: skip

    def status(self) -> dict[str, Any]:
        """See :class:`remit.routing.router.Router`."""
        return {"models": ["m-1"], "begun": self.begun, "cancelled": self.cancelled}


def put(double: RouterDouble) -> None:
    """Have every root routed by ``double``."""
    Runtime.router = property(lambda _: double, lambda _, real: None)  # type: ignore[assignment]


if __name__ == "__main__":
    put(RouterDouble())
    main()
