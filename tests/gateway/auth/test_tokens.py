"""Agent tokens, and the secret that signs them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.gateway.auth import (
    AgentClaims,
    AgentTokenProvider,
    AgentTokens,
    AuthenticationError,
    AuthLimits,
    Identity,
    KeyStore,
)
from remit.ledger import LedgerClient

SECRET = bytes(range(32))
TOKENS = AgentTokens(SECRET)
ISSUED_S = time.time()
TOKEN = TOKENS.issue(
    "writer",
    work_order_id="WO-SES-0123456789ABCDEF-001",
    session_id="SES-0123456789ABCDEF",
    tier="ho1",
    models=["gpt-4o*", "claude-sonnet-4-5"],
    key_id="KEY-0123456789ABCDEF",
    ttl_s=3600,
)


def signed(claims: Any, secret: bytes = SECRET) -> str:
    """A token as somebody with the secret would make it by hand."""

    def encode(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    text = "rat1." + encode(json.dumps(claims).encode())
    return f"{text}.{encode(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


def test_what_was_issued_is_what_is_read() -> None:
    claims = TOKENS.verify(TOKEN)
    assert claims == AgentClaims(
        "writer",
        "WO-SES-0123456789ABCDEF-001",
        "SES-0123456789ABCDEF",
        "ho1",
        ("gpt-4o*", "claude-sonnet-4-5"),
        "KEY-0123456789ABCDEF",
        claims.issued_ms,
        claims.expires_ms,
    )
    assert claims.expires_ms - claims.issued_ms == pytest.approx(3_600_000, abs=2)
    assert abs(claims.issued_ms - ISSUED_S * 1000) < 600_000


@given(st.integers(0, len(TOKEN) - 1), st.characters(max_codepoint=0x2FF))
def test_any_changed_character_is_refused(place: int, char: str) -> None:
    changed = TOKEN[:place] + char + TOKEN[place + 1 :]
    if changed == TOKEN:
        assert TOKENS.verify(changed)
        return
    with pytest.raises(AuthenticationError):
        TOKENS.verify(changed)


def _holds(token: Any) -> bool:
    try:
        TOKENS.verify(token)
    except AuthenticationError:
        return False
    return True


def test_a_token_ends() -> None:
    token = TOKENS.issue("writer", ttl_s=0.05)
    assert TOKENS.verify(token).agent_id == "writer"
    time.sleep(0.06)
    with pytest.raises(AuthenticationError) as caught:
        TOKENS.verify(token)
    with pytest.raises(AuthenticationError) as garbled:
        TOKENS.verify("rat1.x.y")
    assert str(caught.value) == str(garbled.value)  # why is not told


@pytest.mark.parametrize(
    "claims",
    [
        [],
        5,
        {},
        {"sub": "a", "iat": 1},
        {"sub": "", "iat": 1, "exp": 10**14},
        {"sub": 5, "iat": 1, "exp": 10**14},
        {"sub": "a", "iat": 1, "exp": "never"},
        {"sub": "a", "iat": 1, "exp": True},
        {"sub": "a", "iat": 1, "exp": 10**17},
        {"sub": "a", "iat": 1, "exp": 10**14, "models": "gpt"},
        {"sub": "a", "iat": 1, "exp": 10**14, "models": 5},
        {"sub": "a", "iat": 1, "exp": 10**14, "models": [5]},
    ],
)
def test_signed_claims_of_another_shape_are_refused(claims: Any) -> None:
    assert _holds(signed({"sub": "a", "iat": 1, "exp": 10**14}))
    assert not _holds(signed(claims))


def test_the_agent_that_a_token_names() -> None:
    token = TOKENS.issue("writer", tier="ho1", models=["gpt-*"], ttl_s=60)
    agent = AgentTokenProvider(TOKENS).authenticate(token)
    assert (agent.name, agent.role, agent.key_id) == ("writer", "agent", "")
    assert agent.may_act_as("writer")
    assert not agent.may_act_as("reader")
    assert agent.may_use_tier("ho1")
    assert not agent.may_use_tier("hot")
    assert agent.may_use_model("gpt-4o")
    assert not agent.may_use_model("claude-opus-4-1")
    assert agent.expires_at.endswith("Z")


def test_a_token_ends_with_its_key_and_allows_no_more(ledger: LedgerClient) -> None:
    with KeyStore(ledger, AuthLimits(0.5, 5, 60)) as keys:
        made = keys.create("team", models=["gpt-4o*"], user_id="u", team_id="t")
        door = AgentTokenProvider(TOKENS, keys, others=keys)
        token = TOKENS.issue("writer", key_id=made.key_id, ttl_s=600)
        agent = door.authenticate(token)
        assert (agent.name, agent.key_id, agent.user_id, agent.team_id) == (
            "writer",
            made.key_id,
            "u",
            "t",
        )
        assert agent.may_use_model("gpt-4o-mini")
        assert not agent.may_use_model("claude-opus-4-1")
        assert door.authenticate(made.key).name == "team"
        time.sleep(0.002)
        new = keys.rotate("team", grace_s=60)
        with pytest.raises(AuthenticationError):
            door.authenticate(token)
        token = TOKENS.issue("writer", key_id=made.key_id, ttl_s=600)
        assert door.authenticate(token).name == "writer"
        keys.revoke("team")
        for gone in (token, made.key, new.key, None, "rat1."):
            with pytest.raises(AuthenticationError):
                door.authenticate(gone)


def test_each_kind_goes_its_own_way() -> None:
    class Names:
        def __init__(self, name: str) -> None:
            self.name = name

        def authenticate(self, token: str | None) -> Identity:
            return Identity(self.name, "agent")

    door = AgentTokenProvider(TOKENS, others=Names("keys"))
    token = TOKENS.issue("writer", ttl_s=600)
    told = [door.authenticate(one).name for one in (token, "sk-remit-x", "", None, "RAT1.")]
    assert told == ["writer", "keys", "keys", "keys", "keys"]


# -- the secret's file ---------------------------------------------------------------------
