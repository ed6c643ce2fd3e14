"""Agent tokens, and the secret that signs them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from remit.gateway.auth import (
    AgentClaims,
    AgentTokenProvider,
    AgentTokens,
    AuthenticationError,
    AuthLimits,
    Identity,
    KeyStore,
    agent_secret,
)
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.root import Root
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


def test_every_bit_of_the_last_character_counts() -> None:
    # Its lowest two bits stand for no byte: decoders pass over them, the check must not.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    good = [char for char in alphabet if _holds(TOKEN[:-1] + char)]
    assert good == [TOKEN[-1]]


def _holds(token: Any) -> bool:
    try:
        TOKENS.verify(token)
    except AuthenticationError:
        return False
    return True


def test_a_cut_off_or_longer_token_and_what_is_none_are_refused() -> None:
    for cut in (0, 1, 4, 5, 40, len(TOKEN) - 1):
        assert not _holds(TOKEN[:cut])
        assert not _holds(TOKEN + "A" * (cut + 1))
    for odd in (None, b"rat1.a.b", 5, "rat1.", "rat1..", "rat1.." + TOKEN.rpartition(".")[2],
                TOKEN + "="):  # fmt: skip
        assert not _holds(odd)


def test_another_secret_signs_for_somebody_else() -> None:
    with pytest.raises(AuthenticationError):
        AgentTokens(bytes(32)).verify(TOKEN)


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


@pytest.mark.parametrize(
    ("agent", "more"),
    [
        ("", {}),
        ("a\nb", {}),
        ("a" * 129, {}),
        ("a", {"ttl_s": 0}),
        ("a", {"ttl_s": float("nan")}),
        ("a", {"models": "gpt-4o"}),
        ("a", {"models": [""]}),
        ("a", {"session_id": "x\x7f"}),
        ("a", {"models": [f"model-{n}" for n in range(60)]}),
    ],
)
def test_what_cannot_stand_in_a_token_is_an_error(agent: str, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        TOKENS.issue(agent, **{"ttl_s": 60, **more})


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        AgentTokens(b"short")


def test_no_secret_in_a_repr() -> None:
    assert SECRET.hex() not in repr(TOKENS)
    assert repr(SECRET) not in repr(vars(AgentTokenProvider(TOKENS)))


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


def test_a_token_of_a_key_needs_somebody_who_knows_keys() -> None:
    with pytest.raises(AuthenticationError):
        AgentTokenProvider(TOKENS).authenticate(TOKEN)


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


def test_the_secret_is_made_once(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    secret = agent_secret(root)
    file = root.keys / "agent.key"
    assert len(secret) == 32
    assert file.read_text().strip() == secret.hex()
    assert file.stat().st_mode & 0o777 == 0o600
    assert agent_secret(root) == secret
    assert [item.name for item in root.keys.iterdir()] == ["agent.key"]
    assert agent_secret(Root(tmp_path / "other")) != secret


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_secret_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    agent_secret(Root(tmp_path))
    (tmp_path / "HOT/keys/agent.key").chmod(mode)
    with pytest.raises(RemitError, match="chmod 600"):
        agent_secret(Root(tmp_path))


@pytest.mark.parametrize("text", [b"", b"0" * 63, b"g" * 64, b"\xff" * 64])
def test_a_damaged_secret_is_refused_not_replaced(tmp_path: Path, text: bytes) -> None:
    agent_secret(Root(tmp_path))
    file = tmp_path / "HOT/keys/agent.key"
    file.write_bytes(text)
    with pytest.raises(RemitError, match="damaged"):
        agent_secret(Root(tmp_path))
    assert file.read_bytes() == text


def test_processes_that_make_it_together_get_the_same(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from remit.kernel.root import Root; "
        "from remit.gateway.auth import agent_secret; sys.stdin.readline(); "
        "print(agent_secret(Root(Path(sys.argv[1]))).hex())"
    )
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write(b"go\n")
        maker.stdin.flush()
    secrets = {maker.communicate(timeout=60)[0] for maker in makers}
    assert len(secrets) == 1
    assert secrets.pop().strip().decode() == agent_secret(Root(tmp_path)).hex()
