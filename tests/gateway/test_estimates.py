"""The charge of a stream that broke off, estimated from what came and never above its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remit.gateway.billing import estimate
from remit.gateway.config import RouterConfig
from remit.gateway.validation import encode_sent
from tests.support.requests import prompt_request


@given(
    st.none() | st.integers(0, 10_000), st.integers(0, 100_000), st.integers(0, 1_000),
    st.integers(1, 5_000), st.integers(1, 5_000),
)  # fmt: skip
def test_an_estimate_is_within_the_reserved_bound(
    reported: int | None, text_bytes: int, pieces: int, most_in: int, most_out: int
) -> None:
    config, sent = RouterConfig(), encode_sent(prompt_request(prompt="x" * 3_000))
    tokens_in, tokens_out = estimate(
        config, sent, reported, text_bytes, pieces, (most_in, most_out)
    )
    assert 1 <= tokens_in <= most_in
    assert tokens_out <= most_out
    assert tokens_out >= min(pieces, most_out)
    if reported is not None:
        assert tokens_in == max(1, min(reported, most_in))


def test_without_an_output_bound_all_that_came_is_charged() -> None:
    sent = encode_sent(prompt_request())
    _, tokens_out = estimate(RouterConfig(), sent, 5, 4_000, 10, (100, 0))
    assert tokens_out >= 1_000
