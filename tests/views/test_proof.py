"""Proofs checked by the script that the console and the report carry, in a browser."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import (
    EntryNotFoundError,
    LedgerClient,
    LedgerEntry,
    proof_bundle,
)
from remit.ledger.tlog import (
    COSIGNATURE,
    SignedCheckpoint,
    Signer,
    VerifierKey,
    leaf_hash,
    verify_inclusion,
)
from remit.views.page import script
from tests.support.browser import Browser, needs_browser

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page whose only content is the script."""
    page = tmp_path_factory.mktemp("page") / "page.html"
    page.write_text(f"<!doctype html><script>{script('verify.js')}</script>", "utf-8")
    return page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, page: Path) -> Iterator[Browser]:
    options = ("--host-resolver-rules=MAP plain.test 127.0.0.1",)
    with Browser(tmp_path_factory.mktemp("browser") / "profile", *options) as browser:
        browser.open(page.as_uri())
        yield browser


def _write(client: LedgerClient, count: int) -> list[str]:
    said = "entry \u202e ü"
    return client.write_many(
        [
            LedgerEntry("NOTE", "SUB-1", "KEPT", said, metadata={"n": n, "prompt": "?"})
            for n in range(count)
        ]
    )


def _verify(browser: Browser, bundle: Any) -> dict[str, Any]:
    found: dict[str, Any] = browser.run(f"RemitProof.verify({json.dumps(bundle)})")
    return found


def test_a_bundle_is_what_others_need(client: LedgerClient, signer: Signer) -> None:
    ids = _write(client, 300)
    bundle = proof_bundle(client, ids[257])
    assert json.loads(json.dumps(bundle)) == bundle
    assert (bundle["entry_id"], bundle["seq"], bundle["size"]) == (ids[257], 257, 300)
    assert bundle["entry_hash"] == client.read(ids[257]).entry_hash
    assert "$content" in bundle["record"]
    key = VerifierKey.parse(bundle["vkey"])
    head = SignedCheckpoint.parse(bundle["checkpoint"]).verify(key)
    path = [base64.b64decode(item) for item in bundle["proof"]]
    verify_inclusion(leaf_hash(bundle["record"].encode()), 257, 300, path, head.root)
    with pytest.raises(EntryNotFoundError):
        proof_bundle(client, "LED-00001000")


@needs_browser
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 300])
def test_a_browser_verifies_entries(client: LedgerClient, browser: Browser, size: int) -> None:
    ids = _write(client, size)
    client.checkpoint()
    for seq in sorted({0, size // 2, size - 1}):
        bundle = proof_bundle(client, ids[seq])
        found = _verify(browser, bundle)
        assert found["state"] == "verified", found
        assert found["entry"] == ids[seq]
        assert [step["step"] for step in found["steps"]] == ["signature", "hash", "inclusion"]


def _flip(text: str) -> str:
    """``text`` with one character of its middle changed to another of its alphabet."""
    place = len(text) // 2
    return text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]


def _signed(bundle: dict[str, Any]) -> dict[str, Any]:
    text, _, line = bundle["checkpoint"].rpartition("\n\n")
    name, _, signature = line.rstrip("\n").rpartition(" ")
    data = bytearray(base64.b64decode(signature))
    data[40] ^= 1
    return {"checkpoint": f"{text}\n\n{name} {base64.b64encode(data).decode()}\n"}


_OTHER = Signer.generate("example.com/log")
_BROKEN: dict[str, tuple[Change, str]] = {
    "record": (lambda b: {"record": b["record"].replace("KEPT", "KEPS")}, "hash"),
    "entry hash": (lambda b: {"entry_hash": "0" + b["entry_hash"][1:][::-1]}, "hash"),
    "another place": (lambda b: {"seq": 4, "entry_id": "LED-00000004"}, "record"),
    "another name": (lambda b: {"seq": 4}, "bundle"),
    "beyond the tree": (
        lambda b: {"checkpoint": str(SignedCheckpoint.parse(b["small"])), "size": 3}, "inclusion"),
    "proof": (lambda b: {"proof": [*b["proof"][:-1], b["proof"][0]]}, "inclusion"),
    "proof base64": (lambda b: {"proof": ["%", *b["proof"][1:]]}, "inclusion"),
    "proof too short": (lambda b: {"proof": b["proof"][:-1]}, "inclusion"),
    "proof too long": (lambda b: {"proof": [*b["proof"], b["proof"][0]]}, "inclusion"),
    "root": (lambda b: {"checkpoint": b["checkpoint"].replace("\n8\n", "\n9\n")}, "signature"),
    "size": (lambda b: {"size": 9}, "checkpoint"),
    "signature": (_signed, "signature"),
    "no signature": (lambda b: {"checkpoint": b["checkpoint"].partition("—")[0]}, "signature"),
    "not a note": (lambda b: {"checkpoint": "hello"}, "checkpoint"),
    "another key": (lambda b: {"vkey": str(_OTHER.verifier_key)}, "signature"),
    "another log": (
        lambda b: {"vkey": str(Signer.generate("example.com/b").verifier_key)}, "checkpoint"),
    "damaged key": (lambda b: {"vkey": _flip(b["vkey"])}, "key"),
    "a witness's key": (
        lambda b: {"vkey": str(Signer.generate("example.com/log", COSIGNATURE).verifier_key)},
        "key"),
    "no key": (lambda b: {"vkey": ""}, "key"),
    "nothing": (lambda b: {"proof": None}, "bundle"),
    "a list": (lambda b: {"record": [b["record"]]}, "bundle"),
    "one more member": (lambda b: {"leaf": "x"}, "bundle"),
}  # fmt: skip


@needs_browser
@pytest.mark.parametrize("broken", _BROKEN)
def test_a_browser_says_what_does_not_hold(
    client: LedgerClient, browser: Browser, broken: str
) -> None:
    _write(client, 3)
    small = client.checkpoint()
    ids = [entry.id for entry in client.read_all()] + _write(client, 5)
    client.checkpoint()
    bundle = proof_bundle(client, ids[5])
    assert _verify(browser, bundle)["state"] == "verified"
    change, step = _BROKEN[broken]
    found = _verify(browser, bundle | change({**bundle, "small": small}))  # type: ignore[operator]
    assert (found["state"], found["step"]) == ("failed", step), found
    assert found["message"]
    assert found["steps"][-1]["ok"] is False
    assert found["entry"] == (
        "LED-00000004" if broken in ("another place", "another name") else ids[5]
    )


@needs_browser
def test_a_cosignature_does_not_stand_in_for_the_logs_own(
    client: LedgerClient, browser: Browser
) -> None:
    (entry_id,) = _write(client, 1)
    witness = Signer.generate("witness.example/w1", COSIGNATURE)
    signed = SignedCheckpoint.parse(client.checkpoint())
    cosigned = signed.with_signatures([signed.cosign(witness)])
    client.checkpoints.add_cosignature(cosigned, witness.verifier_key)
    bundle = proof_bundle(client, entry_id)
    assert "witness.example/w1" in bundle["checkpoint"]
    assert _verify(browser, bundle)["state"] == "verified"
    text, _, lines = bundle["checkpoint"].rpartition("\n\n")
    alone = "".join(f"{line}\n" for line in lines.splitlines() if "witness" in line)
    assert alone
    found = _verify(browser, bundle | {"checkpoint": f"{text}\n\n{alone}"})
    assert (found["state"], found["step"]) == ("failed", "signature")
