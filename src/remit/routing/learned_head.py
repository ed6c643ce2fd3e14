"""A learned routing head, which predicts in integers how good a model's answer will be.

Heads are fitted in :mod:`remit.learning.routes`. This module reads, applies and records them. A
prompt is the set of its words and pairs of neighbouring words, hashed into buckets; each model has
a weight for every bucket. docs/routing.md has the formula.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isqrt
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.pydantic_validation import first_error
from remit.ledger import Erased, LedgerClient, Transaction
from remit.routing.errors import ErasedHeadError, WeightsError
from remit.routing.trail import (
    ThoughtInput,
    ThoughtNotFoundError,
    append_thoughts,
    get_thought_record,
)

MILLION = 1_000_000
NOT_LEARNED = 10 * MILLION
"""Taken off a model that the head does not know: it comes behind all that it knows."""

_MAX_LOG = 50 * MILLION  # A million US dollars.
_HORIZON = 25  # Shorter, the price weight follows chance; longer, a wrong start costs more.
_LEAST = 1_000  # Millionths of reward that a cap's worth is worth at least, so that it can grow.
_LARGEST_WEIGHT = MILLION * MILLION
_TRAIL = "routing-heads"
_NEAREST = 3
_WORDS = re.compile(rb"[a-z0-9_\x80-\xff]+|[^\x00-\x20a-z0-9_\x80-\xff]")

_Integer = Annotated[int, Field(strict=True, ge=-(2**50), le=2**50)]
_Bucket = Annotated[int, Field(strict=True, ge=0, lt=2**20)]


class StrictModel(BaseModel):
    """A part of a file; unknown members are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LearnedModel(StrictModel):
    """The learned parameters of a model.

    Attributes:
        bias: mean reward, in millionths.
        cost_nano: mean cost of a call, in nano-dollars.
        samples: number of graded answers.
        weights: weight of each bucket, in millionths.
        cost_bias: binary logarithm of the usual cost in nano-dollars (:func:`binary_log`).
        cost_length: part of the logarithm of the prompt's tokens that is added, in millionths.
        cost_weights: weight of each bucket for the logarithm of the cost, in millionths; empty if
            every call is expected to cost ``cost_nano``.
    """

    bias: _Integer
    cost_nano: Annotated[_Integer, Field(ge=0)]
    samples: Annotated[_Integer, Field(ge=1)]
    weights: tuple[_Integer, ...]
    cost_bias: _Integer = 0
    cost_length: _Integer = 0
    cost_weights: tuple[_Integer, ...] = ()


class Neighbour(StrictModel):
    """A prompt of the training set, without its text.

    Attributes:
        exchange_id: the entry that contains the prompt.
        buckets: buckets of its words, ascending.
        tokens: estimated tokens of the whole prompt.
        traffic: number of times that the prompt counts, in millionths.
        rewards: grade by model, in millionths; empty in a head of the first format.
        costs: cost by model, in nano-dollars.
    """

    exchange_id: Annotated[str, Field(pattern=r"^LED-[0-9a-f]{8,}$")]
    buckets: tuple[_Bucket, ...]
    tokens: _Integer = 0
    traffic: _Integer = MILLION
    rewards: dict[str, _Integer] = {}
    costs: dict[str, _Integer] = {}


class _HeadFile(StrictModel):
    format: Literal["remit.routing-head/1", "remit.routing-head/2"]
    buckets: Annotated[int, Field(strict=True, ge=1, le=2**20)]
    models: Annotated[dict[str, LearnedModel], Field(min_length=1)]
    neighbours: tuple[Neighbour, ...] = ()
    evidence: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class _EvidenceFile(StrictModel):
    format: Literal["remit.routing-evidence/1"]
    neighbours: tuple[Neighbour, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LearnedHead:
    """A checked head. The weights and the prompts that they were fitted to are separate documents.

    Attributes:
        digest: SHA-256 (hex) of ``encoded``; the rules name it.
        encoded: the weights in canonical JSON, which name the SHA-256 of the evidence.
        buckets: number of buckets.
        models: learned parameters, keyed by model name.
        neighbours: prompts of the training set; empty if the evidence is missing or was erased.
        evidence: the prompts in canonical JSON; empty if a head of the first format contains them.
    """

    digest: str
    encoded: bytes = field(repr=False)
    buckets: int
    models: Mapping[str, LearnedModel] = field(repr=False)
    neighbours: Sequence[Neighbour] = field(repr=False)
    evidence: bytes = field(default=b"", repr=False)

    @classmethod
    def from_document(cls, document: Any, evidence: bytes = b"") -> Self:
        """Return the head in the content of a file.

        Args:
            document: the content.
            evidence: the document of the prompts, in bytes; empty without them.

        Raises:
            WeightsError: the content is not a head, or the evidence is not the named one.
        """
        try:
            read = _HeadFile.model_validate(document, strict=False)
            encoded = canonical_json(dict(document))
            neighbours = read.neighbours
            if evidence and read.evidence:
                neighbours = _EvidenceFile.model_validate_json(evidence).neighbours
        except ValidationError as error:
            key, problem = first_error(error)
            raise WeightsError(f"{key or 'The document'} of a routing head: {problem}.") from error
        except InvalidInputError as error:
            raise WeightsError(f"A routing head has no canonical JSON: {error.message}") from error
        for name, model in read.models.items():
            if len(model.weights) != read.buckets or len(model.cost_weights) not in (
                0, read.buckets,
            ):  # fmt: skip
                raise WeightsError(f"{name} of a routing head has {len(model.weights)} weights.")
        if evidence and sha256_hex(evidence) != read.evidence:
            raise WeightsError("The evidence of a routing head is not the one that it names.")
        return cls(sha256_hex(encoded), encoded, read.buckets, read.models, neighbours, evidence)

    @classmethod
    def from_bytes(cls, data: bytes, evidence: bytes = b"") -> Self:
        """Return the head in the bytes of a file.

        Args:
            data: the bytes.
            evidence: as in :meth:`from_document`.

        Raises:
            WeightsError: the bytes are not a head, or the evidence is not the named one.
        """
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise WeightsError(f"A routing head is not JSON: {error}.") from error
        return cls.from_document(document, evidence)

    @classmethod
    def from_path(cls, path: Path) -> Self:
        """Return the head in a file, with the evidence in the file :func:`evidence_file`.

        Raises:
            WeightsError: a file cannot be read, or is not a head.
        """
        beside = evidence_file(path)
        try:
            return cls.from_bytes(
                path.read_bytes(), beside.read_bytes() if beside.exists() else b""
            )
        except OSError as error:
            raise WeightsError(f"The routing head {path} cannot be read: {error}.") from error

    @classmethod
    def fitted(
        cls, buckets: int, models: Mapping[str, Any], neighbours: Sequence[Neighbour]
    ) -> Self:
        """Return the head with these parameters, and the evidence that they were fitted to.

        Args:
            buckets: number of buckets.
            models: fields of :class:`LearnedModel`, keyed by model name.
            neighbours: the prompts of the training set.

        Raises:
            WeightsError: there is no model, or its fields do not fit.
        """
        evidence = canonical_json({
            "format": "remit.routing-evidence/1",
            "neighbours": [one.model_dump(mode="json") for one in neighbours],
        })  # fmt: skip
        document = {
            "format": "remit.routing-head/2", "buckets": buckets, "models": models,
            "evidence": sha256_hex(evidence),
        }  # fmt: skip
        return cls.from_document(document, evidence)

    def qualities(self, seen: Sequence[int]) -> dict[str, int]:
        """Return the expected reward of each model from 0 to 1, in millionths, keyed by model name.

        Args:
            seen: the prompt's buckets (:func:`buckets_of`) for the head's number of buckets.
        """
        length = isqrt(len(seen) * MILLION * MILLION) or 1
        found = {}
        for name, model in self.models.items():
            total = sum(map(model.weights.__getitem__, seen)) * MILLION // length
            found[name] = min(MILLION, max(0, model.bias + total))
        return found

    def costs(self, seen: Sequence[int], tokens: int) -> dict[str, int]:
        """Return the expected cost of a call of each model in nano-dollars, keyed by model name.

        A model without learned costs has the recorded mean.

        Args:
            seen: the prompt's buckets.
            tokens: estimated tokens of the whole prompt.
        """
        length = isqrt(len(seen) * MILLION * MILLION) or 1
        size = binary_log(max(1, tokens))
        found = {}
        for name, model in self.models.items():
            if not model.cost_weights:
                found[name] = model.cost_nano
                continue
            total = sum(map(model.cost_weights.__getitem__, seen)) * MILLION // length
            total += model.cost_bias + model.cost_length * size // MILLION
            found[name] = binary_power(min(_MAX_LOG, max(0, total)))
        return found

    def nearest(self, seen: Sequence[int]) -> list[tuple[str, int]]:
        """Return the up to three most similar prompts of the training set, most similar first.

        Args:
            seen: the prompt's buckets.

        Returns:
            Pairs of the ``EXCHANGE`` that contains the prompt, and the similarity in millionths:
            the squared cosine of both sets of buckets, which may be 0. Empty without the training
            set.
        """
        mine = set(seen)
        found = [
            (
                MILLION * len(mine.intersection(one.buckets)) ** 2
                // (len(mine) * len(one.buckets) or 1),
                one.exchange_id,
            )
            for one in self.neighbours
        ]  # fmt: skip
        found.sort(key=lambda pair: (-pair[0], pair[1]))
        return [(exchange_id, similarity) for similarity, exchange_id in found[:_NEAREST]]


def buckets_of(text: str, buckets: int) -> list[int]:
    """Return the buckets of a text's words and word pairs, ascending and without duplicates.

    The text is taken in UTF-8 with ``A-Z`` in lower case. A word is a run of the bytes ``a-z0-9_``
    and of bytes from 0x80 up, or one other byte above 0x20.

    Args:
        text: the text.
        buckets: number of buckets; a bucket is a number from 0 to one less.
    """
    words = _WORDS.findall(text.encode("utf-8", "replace").lower())
    found = set(map(crc32, words))
    found.update([crc32(b"%b %b" % pair) for pair in pairwise(words)])
    return sorted({value % buckets for value in found})


def steered_weight(price_weight: int, cap_nano: int, balance_nano: int) -> int:
    """Return the price weight of a decision, in millionths.

    A debt of 25 caps doubles the price weight, and savings of 25 caps halve it. A price weight by
    which the cap is worth less than a thousandth of reward is raised to that first. Without a cap
    the price weight is returned unchanged.

    Args:
        price_weight: the price weight of the rules, in millionths.
        cap_nano: highest mean cost of a call in nano-dollars; 0 for none.
        balance_nano: the balance (:func:`next_balance`) before the call.
    """
    if not cap_nano:
        return price_weight
    least = 1 + _LEAST * 1_000_000_000 // cap_nano
    log = binary_log(max(least, price_weight)) - balance_nano * MILLION // (_HORIZON * cap_nano)
    return min(_LARGEST_WEIGHT, binary_power(max(0, log)))


def next_balance(balance_nano: int, cost_nano: int, cap_nano: int) -> int:
    """Return the balance after a call: 98 % of the cap less the cost is added.

    The balance is limited to savings of 100 caps and a debt of 200, so that old calls are
    forgotten. A debt is negative.

    Args:
        balance_nano: the balance before the call, in nano-dollars.
        cost_nano: cost of the call, in nano-dollars.
        cap_nano: highest mean cost of a call, in nano-dollars; 2 % of it are a reserve.
    """
    most = _HORIZON * cap_nano
    return max(-8 * most, min(4 * most, balance_nano + cap_nano - cap_nano // 50 - cost_nano))


def binary_log(value: int) -> int:
    """Return the binary logarithm of a whole number above 0, in millionths, linear between powers.

    For 2^e ≤ value ≤ 2^(e+1) the result is e plus ``value / 2^e - 1``, rounded down.
    """
    power = value.bit_length() - 1
    return power * MILLION + ((value - (1 << power)) * MILLION >> power)


def binary_power(log: int) -> int:
    """Return the number whose :func:`binary_log` is ``log``, rounded down.

    Args:
        log: a logarithm in millionths, 0 or more.
    """
    power, rest = divmod(log, MILLION)
    return (MILLION + rest << power) // MILLION


def learned_score(
    quality: int,
    cost_nano: int,
    *,
    price_weight: int,
    quality_floor: int,
    factors: Mapping[str, int],
) -> int:
    """Return a model's score by its learned parameters, in millionths; divisions round down.

    Args:
        quality: expected reward, in millionths.
        cost_nano: expected cost of the call, in nano-dollars.
        price_weight: the reward that a dollar is worth, in millionths.
        quality_floor: 0 for none; else models of at least this quality come first, cheapest first.
        factors: ``ability`` and ``cost`` of the operator preference, in millionths; not used with a
            floor.
    """
    if not quality_floor:
        price = price_weight * cost_nano // 1_000_000_000
        return (factors["ability"] * quality - factors["cost"] * price) // MILLION
    if quality < quality_floor:
        return quality
    return 2 * MILLION - min(MILLION - 1, cost_nano // 1000)


def evidence_file(head: Path) -> Path:
    """Return the file of the evidence of a head: ``X.evidence.json`` for ``X.head.json``."""
    return head.with_name(head.name.replace(".head.json", ".evidence.json"))


def append_head(tx: Transaction, ledger: LedgerClient, head: LearnedHead) -> None:
    """Append a head as thoughts unless it is recorded, so that its decisions can be recomputed.

    Appends a ``THOUGHT_RECORD`` with the id ``HEAD-`` and the digest, in a trail of its own, and
    before it one with the id ``EVIDENCE-`` and the digest of the evidence, if there is evidence.

    Args:
        tx: the transaction.
        ledger: the ledger of the transaction.
        head: the head.

    Raises:
        TrailError: the trail of the heads cannot be continued.
    """
    parts = {"EVIDENCE": head.evidence, "HEAD": head.encoded}
    append_thoughts(tx, ledger, {
        f"{kind}-{sha256_hex(data)}": ThoughtInput(
            type="plan", task_id=_TRAIL, agent_id="router", content=data.decode()
        )
        for kind, data in parts.items()
        if data
    })  # fmt: skip


def head_on_record(ledger: LedgerClient, digest: str) -> LearnedHead:
    """Return the head that was recorded under a digest. Blocks.

    If the evidence was erased or is not recorded, the head has no neighbours.

    Args:
        ledger: the ledger.
        digest: SHA-256 of the head in hex.

    Raises:
        ErasedHeadError: the head was erased.
        WeightsError: the head is not recorded, or is not a head.
        EntryArchivedError: its entry is in a segment that is not attached.
        TrailError: its entry is missing, or belongs to another record.
        LedgerError: the ledger cannot be read.
    """
    content = _thought(ledger, f"HEAD-{digest}")
    if content is None:
        raise WeightsError(f"The routing head {digest} is not on record.")
    if not isinstance(content, str):
        raise ErasedHeadError(f"The routing head {digest} was erased under {content.erasure_id}.")
    named = json.loads(content).get("evidence")
    evidence = _thought(ledger, f"EVIDENCE-{named}") if named else None
    return _parsed(content, evidence if isinstance(evidence, str) else "")


def _thought(ledger: LedgerClient, name: str) -> str | Erased | None:
    try:
        return get_thought_record(ledger, name).content
    except ThoughtNotFoundError:
        return None


@functools.lru_cache(maxsize=4)
def _parsed(content: str, evidence: str) -> LearnedHead:
    return LearnedHead.from_bytes(content.encode(), evidence.encode())
