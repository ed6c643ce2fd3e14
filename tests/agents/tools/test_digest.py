"""The hash of a tool's definition: what a model is shown, and nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
import rfc8785

from remit.agents.tools import Tool

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
PAY = Tool("pay", "Pay a bill.", SCHEMA, print)


def test_it_is_sha_256_of_the_canonical_definition() -> None:
    definition = {"tool_id": "pay", "description": "Pay a bill.", "parameters": SCHEMA}
    assert PAY.digest == hashlib.sha256(rfc8785.dumps(definition)).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"tool_id": "pays"},
        {"description": "Pay a bill"},
        {"input_schema": {**SCHEMA, "required": []}},
        {"input_schema": {**SCHEMA, "additionalProperties": False}},
    ],
)
def test_what_a_model_is_shown_changes_it(change: dict[str, Any]) -> None:
    assert replace(PAY, **change).digest != PAY.digest


@pytest.mark.parametrize(
    "change",
    [
        {"function": repr},
        {"timeout_s": 1.0, "max_output_bytes": 512, "label": "till", "on_unknown": "fail"},
        {"input_schema": dict(reversed(SCHEMA.items()))},
    ],
)
def test_nothing_else_does(change: dict[str, Any]) -> None:
    assert replace(PAY, **change).digest == PAY.digest


def test_a_schema_that_jcs_cannot_carry_has_one_too() -> None:
    """Servers that are made of typed programs state the bounds of a 64-bit integer."""
    great = replace(PAY, input_schema={"type": "object", "maximum": 2**63 - 1})
    other = replace(PAY, input_schema={"maximum": 2**63 - 2, "type": "object"})
    assert len(great.digest) == len(other.digest) == 64
    assert great.digest != other.digest
    same = replace(PAY, input_schema={"maximum": 2**63 - 1, "type": "object"})
    assert great.digest == same.digest
