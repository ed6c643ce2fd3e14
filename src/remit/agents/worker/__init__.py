"""The worker (tier HO1): executes one work order with the inputs and tools it was given.

Owns model calls and tool calls of an order, and the entries ``WO_EXECUTING``, ``LLM_CALL``,
``TOOL_INTENT``, ``TOOL_CALL``, ``WO_COMPLETED`` and ``WO_FAILED``. Does not plan orders or judge
answers (``remit.agents.supervisor`` does). A recorded step is never repeated, and a tool runs only
after its intent is durable. Start reading at :meth:`HO1Executor.aexecute`, then ``order_run.py``
and ``tool_calls.py``.
"""

from remit.agents.worker.executor import HO1Executor
from remit.agents.worker.external_order import AttachedOrder
from remit.agents.worker.failures import WorkFailedError, WorkParkedError
from remit.agents.worker.model_calls import IGNORABLE, visible
from remit.agents.worker.tool_results import result_text

__all__ = [
    "IGNORABLE",
    "AttachedOrder",
    "HO1Executor",
    "WorkFailedError",
    "WorkParkedError",
    "result_text",
    "visible",
]
