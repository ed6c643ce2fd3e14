"""The decision record: the chosen model, its alternatives, and the rules."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from remit.kernel.canonical import canonical_json, exact_json
from remit.kernel.errors import InvalidInputError
from remit.kernel.pydantic_validation import changed, check_fields
from remit.ledger import EncodedValue, is_plain_text

RoutingMode = Literal["single", "ensemble", "pipeline", "fail"]

RULES_UNAVAILABLE = "rv:sha256:unavailable"
"""The version of rules that cannot be read: the defaults are in force then."""

_INPUTS = {"candidates_considered", "context", "prompt", "rule_version_hash"}
_PREFIX = "rv:"
_MAX_ATTEMPTS = 2**31 - 1
_VERSION = re.compile(r"rv:sha256:([0-9a-f]{64}|unavailable)")
_HASH = re.compile(r"[0-9a-f]{64}")


def new_decision_id() -> str:
    """Return a new id: ``DEC-``, 12 hex digits of the time in milliseconds, and 20 random ones."""
    # The time first: ids of one commit stand together in an index, whose pages it writes.
    return f"DEC-{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


def normalise_rule_version_hash(raw: str) -> str:
    """Return ``sha256:…`` with the prefix ``rv:``, and any other text unchanged.

    Raises:
        InvalidInputError: the value is not a text.
    """
    if not isinstance(raw, str):
        raise InvalidInputError("A rule version hash is a text such as 'sha256:…'.")
    return _PREFIX + raw if raw.startswith("sha256:") else raw


def encode_prompt(prompt: Any) -> bytes:
    """Return a prompt as JSON for the hash of a decision: each message as its record encodes it.

    Args:
        prompt: a text, or messages.

    Raises:
        NotCanonicalError: the prompt cannot be recorded.
    """
    if isinstance(prompt, list | tuple):
        return b"[%b]" % b",".join(map(exact_json, prompt))
    return exact_json(prompt)


def compute_decision_hash(inputs: Mapping[str, Any], chosen_model_id: str) -> str:
    """Return the SHA-256, 64 hex, of the inputs' canonical JSON and the chosen model's name.

    Args:
        inputs: exactly ``prompt``, ``context``, ``rule_version_hash`` and
            ``candidates_considered``.
        chosen_model_id: appended to the JSON in UTF-8; empty if no model was chosen.

    Raises:
        InvalidInputError: the keys differ, or a value has no canonical JSON.
    """
    if not isinstance(inputs, Mapping) or set(inputs) != _INPUTS:
        raise InvalidInputError(
            "The inputs of a decision hash have other keys than they should.",
            next_step=f"Give a mapping of exactly {', '.join(sorted(_INPUTS))}.",
        )
    encoded = {name: canonical_json(inputs[name]) for name in _INPUTS - {"prompt"}}
    encoded["prompt"] = encode_prompt(inputs["prompt"])
    members = (b'"%b":%b' % (name.encode(), encoded[name]) for name in sorted(encoded))
    digest = hashlib.sha256(b"{%b}" % b",".join(members))
    try:
        digest.update(chosen_model_id.encode())
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidInputError("The chosen model's name is not a text.") from error
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class RoutingDecisionRecord:
    """The 8 fields of a decision; checked and immutable.

    Attributes:
        type: ``routing_decision``.
        routing_mode: ``single``, ``ensemble``, ``pipeline``, or ``fail`` if no model answered.
        chosen_model_id: the chosen model; empty on ``fail``.
        candidates_considered: the chain, in order.
        scores: the score of each candidate, with at most 6 decimals.
        fallback_attempts: number of models tried, minus one; on ``fail`` all attempts and skips.
        rule_version_hash: ``rv:sha256:`` and 64 hex, or ``unavailable``.
        decision_hash: see :func:`compute_decision_hash`.

    Raises:
        InvalidInputError: a field has a wrong value; the message names it.
    """

    routing_mode: RoutingMode
    chosen_model_id: str
    candidates_considered: tuple[str, ...]
    scores: Mapping[str, Annotated[float, Field(allow_inf_nan=False)]]
    fallback_attempts: Annotated[int, Field(ge=0, le=_MAX_ATTEMPTS)]
    rule_version_hash: str
    decision_hash: str
    type: Literal["routing_decision"] = "routing_decision"

    def __post_init__(self) -> None:
        check_fields(self, "a decision record")
        chosen, chain = self.chosen_model_id, self.candidates_considered
        if bool(chosen) == (self.routing_mode == "fail") or (chosen and chosen not in chain):
            raise InvalidInputError(
                f"chosen_model_id of a decision record is {chosen!r}.",
                next_step="It takes a model of candidates_considered; on 'fail' it is empty.",
            )
        if not all(name and is_plain_text(name) for name in chain):
            raise InvalidInputError(
                "candidates_considered of a decision record has a name that is empty or no text "
                "that is kept: it holds NUL or a lone surrogate."
            )
        if len(set(chain)) != len(chain):
            raise InvalidInputError("candidates_considered of a decision record names one twice.")
        if sorted(self.scores) != sorted(chain):
            raise InvalidInputError("A decision record takes a score for each candidate alone.")
        if not _VERSION.fullmatch(self.rule_version_hash):
            raise InvalidInputError(
                f"rule_version_hash of a decision record is {self.rule_version_hash!r}.",
                next_step="It takes rv:sha256: and 64 hexadecimal digits, or 'unavailable'.",
            )
        if not _HASH.fullmatch(self.decision_hash):
            raise InvalidInputError(
                f"decision_hash of a decision record is {self.decision_hash!r}.",
                next_step="compute_decision_hash gives one: 64 hexadecimal digits.",
            )
        scores = {name: float(value) for name, value in self.scores.items()}
        object.__setattr__(self, "scores", MappingProxyType(scores))

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.to_dict(),)

    def to_dict(self) -> dict[str, Any]:
        """Return the 8 fields as JSON."""
        shown: dict[str, Any] = {"type": self.type}
        shown |= {name: getattr(self, name) for name in self.__slots__}
        shown["candidates_considered"] = list(self.candidates_considered)
        shown["scores"] = dict(self.scores)
        return shown


def _unpickled(fields: dict[str, Any]) -> RoutingDecisionRecord:
    return build_routing_decision_record(**fields)


def build_routing_decision_record(**fields: Any) -> RoutingDecisionRecord:
    """Return a record with the given fields; ``type`` may be left out.

    A rule version ``sha256:…`` gets the prefix ``rv:``, and a list of candidates becomes a tuple.

    Raises:
        InvalidInputError: a field is missing, unknown or has a wrong value; the message names it.
    """
    chain = fields.get("candidates_considered")
    changes: dict[str, Any] = {
        "rule_version_hash": normalise_rule_version_hash(fields.get("rule_version_hash", "")),
        "candidates_considered": tuple(chain) if isinstance(chain, (list, tuple)) else chain,
    }
    try:
        return RoutingDecisionRecord(**{**fields, **changes})
    except TypeError as error:
        raise InvalidInputError(f"A decision record has 8 fields, not these: {error}.") from error


class DecisionForm:
    """The encoded part of decisions that does not depend on the prompt.

    Args:
        record: a decision with those fields; its ``decision_hash`` is ignored.
        context: canonical JSON of the other inputs of scoring.
    """

    def __init__(self, record: RoutingDecisionRecord, context: bytes) -> None:
        self._record = record
        chain = canonical_json(list(record.candidates_considered))
        self._hash = hashlib.sha256(
            b'{"candidates_considered":%b,"context":%b,"prompt":' % (chain, context)
        )
        version = canonical_json(record.rule_version_hash)
        chosen = record.chosen_model_id.encode()
        self._behind = b',"rule_version_hash":%b}%b' % (version, chosen)
        shown = {**record.to_dict(), "decision_hash": ""}
        # First in a value's text this can only be the member: a quote in a text is escaped.
        before, member, after = canonical_json(shown).decode().partition('"decision_hash":"')
        self._text = before + member, after

    def of(self, prompt: bytes) -> tuple[RoutingDecisionRecord, str]:
        """Return the decision record for a prompt in canonical JSON, and the record's own canonical
        JSON.
        """
        digest = self._hash.copy()
        digest.update(prompt)
        digest.update(self._behind)
        found = digest.hexdigest()
        before, after = self._text
        return changed(self._record, decision_hash=found), f"{before}{found}{after}"


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """A decision with everything needed to explain and to repeat it.

    Attributes:
        decision_id: its id.
        record: the 8 fields.
        prompt: the prompt: a text, or a conversation's messages.
        context: inputs of scoring: ``task``, ``operator_preference``, ``candidates``, ``weights``.
        profiles: the profile of each candidate (:meth:`Candidate.profile`).
        skipped: candidates that nothing was sent to: ``model_id``, ``provider_id``, ``code``,
            ``reason``.
        attempts: candidates that were called, with ``outcome``, ``latency_ms`` and
            ``exchange_entry_id``; failed ones with ``error_code`` and ``error_message``.
        stages: the decision of each pipeline stage, or how an ensemble's answers were joined; empty
            for ``single``.
        scoring: ``remit``, or the name of another scoring function.
        route: the name that the call asked for.
        session_id: the session that the content belongs to.
        subject_id: the person of whom the prompt speaks; None for nobody.
        drawn: the ``propensity`` of the choice, and the draw of an ``exploration`` or ``canary``.
        encoded: ``context`` and ``profiles``, encoded, if available.
        exact: the prompt's messages as received, encoded, if available.
        text: canonical JSON of ``record``.
    """

    decision_id: str
    record: RoutingDecisionRecord
    prompt: Any
    context: Mapping[str, Any]
    profiles: Mapping[str, Mapping[str, Any]]
    skipped: Sequence[Mapping[str, Any]] = ()
    attempts: Sequence[Mapping[str, Any]] = ()
    stages: Sequence[Mapping[str, Any]] = ()
    scoring: str = "remit"
    route: str = ""
    session_id: str = ""
    subject_id: str | None = None
    drawn: Mapping[str, float] = field(default_factory=dict)
    encoded: Mapping[str, EncodedValue] = field(default_factory=dict, repr=False, compare=False)
    exact: Sequence[EncodedValue] = field(default=(), repr=False, compare=False)
    text: str = field(default="", repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON, without the encoded forms."""
        shown = {name: getattr(self, name) for name in self.__slots__[:-3]}
        return {**shown, "record": self.record.to_dict()}
