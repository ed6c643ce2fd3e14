"""Specifications, frameworks, agents and cases: what is one, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from remit.kernel.schemas import schema_problem, shipped_schema
from remit.packages import AgentDocument, Framework, PackageError
from remit.packages.documents import Specification, read_cases
from tests.packages.checks.building import AGENT, CASES, FRAMEWORK, SPEC, encoded

_READERS: dict[str, tuple[Any, Any, str]] = {
    "spec": (Specification.parse, SPEC, "HOT/specs/SPEC-GREET-001.json"),
    "framework": (Framework.parse, FRAMEWORK, "HOT/frameworks/FMWK-GREET-001.json"),
    "agent": (AgentDocument.parse, AGENT, "HO2/agents/greeter.json"),
    "acceptance": (read_cases, CASES, "HOT/acceptance/PKG-GREET-001.json"),
}


@pytest.mark.parametrize("kind", _READERS)
def test_whole_documents_are_read(kind: str) -> None:
    reader, value, path = _READERS[kind]
    assert reader(encoded(value), path)


@pytest.mark.parametrize("name", ["specification", "framework", "agent", "acceptance", "trust"])
def test_schemas_are_valid_and_describe_every_property(name: str) -> None:
    schema = shipped_schema(name)
    assert schema_problem(schema) == ""

    def walk(value: dict[str, Any], place: str) -> None:
        for key, item in value.get("properties", {}).items():
            assert item.get("description"), f"{place}/{key}"
            walk(item, f"{place}/{key}")
        if value.get("type") == "object" and "properties" in value:
            assert value["additionalProperties"] is False, place
        if isinstance(value.get("items"), dict):
            walk(value["items"], f"{place}/items")

    walk(schema, name)


@pytest.mark.parametrize("kind", _READERS)
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is not JSON"),
        (b"[]", "is not a valid"),
        (b"\xff", "is not UTF-8"),
        (b'{"a": NaN}', "is not JSON"),
        (b"[" * 5000, "JSON|too deeply"),
        (b'{"version": "1.0.0", "version": "1.0.0"}', "twice"),
    ],
)
def test_what_is_no_document_is_refused(kind: str, data: bytes, says: str) -> None:
    reader, _, path = _READERS[kind]
    with pytest.raises(PackageError, match=says) as caught:
        reader(data, path)
    assert caught.value.code == "document_invalid"
    assert path in caught.value.message


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("spec", {"extra": 1}),
        ("spec", {"framework_id": "SPEC-GREET-001"}),
        ("spec", {"version": "1"}),
        ("spec", {"contracts": ["PRC-GREET-001", "PRC-GREET-001"]}),
        ("spec", {"schemas": ["HO1/x.json"]}),
        ("framework", {"rules": {"gates": ["G7"]}}),
        ("framework", {"rules": {"paths": ["/etc/"]}}),
        ("framework", {"rules": {"permissions": {"budgets": {"usd_budget": 1.5}}}}),
        ("framework", {"config": {"nodot": {}}}),
        ("framework", {"config": {"a.b": {"type": "nonsense"}}}),
        ("agent", {"tools": ["has space"]}),
        ("agent", {"approve": ["read_file"]}),
        ("agent", {"usd_budget": 0.5}),
        ("agent", {"token_budget": -1}),
        ("agent", {"contract_id": "PRC-1"}),
        ("acceptance", {"cases": []}),
        ("acceptance", {"cases": [CASES["cases"][1], CASES["cases"][1]]}),
        ("acceptance", {"cases": [{"name": "x", "kind": "schema", "value": 1, "valid": True}]}),
        ("acceptance", {"cases": [{**CASES["cases"][3], "schema": "HOT/schemas/a.schema.json"}]}),
        ("acceptance", {"cases": [{**CASES["cases"][3], "usd": 0.75}]}),
    ],
)
def test_values_outside_the_schema_are_refused(kind: str, changes: dict[str, Any]) -> None:
    reader, value, path = _READERS[kind]
    with pytest.raises(PackageError) as caught:
        reader(encoded({**value, **changes}), path)
    assert caught.value.code == "document_invalid"
