"""Is an answer fit to be delivered?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remit.workorders import WorkOrder, WorkOrderState

__all__ = ["check_answer"]


def check_answer(order: WorkOrder, error_markers: Sequence[str]) -> list[str]:
    """Why the order's result must not be delivered; empty when it may.

    Args:
        order: ended.
        error_markers: texts that mark a failed answer at its start.
    """
    if order.state is not WorkOrderState.COMPLETED:
        error = order.error or {}
        return [f"{error.get('code', 'failed')}: {error.get('message', 'the order failed')}"]
    result: Any = order.output_result
    text = str(result.get("text", "")) if isinstance(result, dict) else ""
    if not text.strip():
        return ["the answer is empty"]
    reasons = [
        f"the answer begins with the error marker {marker!r}"
        for marker in error_markers
        if text.lstrip().startswith(marker)
    ]
    if result.get("finish_reason") == "content_filter":
        reasons.append("the provider filtered the answer")
    return reasons
