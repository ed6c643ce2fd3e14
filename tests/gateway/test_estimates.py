"""The charge of a stream that broke off, estimated from what came and never above its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remit.gateway.billing import estimated_output
from remit.gateway.config import RouterConfig


@given(st.integers(0, 100_000), st.integers(0, 1_000), st.integers(1, 5_000))
def test_an_estimate_is_within_the_reserved_bound(text_bytes: int, pieces: int, most: int) -> None:
    tokens = estimated_output(RouterConfig(), text_bytes, pieces, most)
    assert min(pieces, most) <= tokens <= most


def test_without_an_output_bound_all_that_came_is_charged() -> None:
    assert estimated_output(RouterConfig(), 4_000, 10, 0) >= 1_000
