"""The search for additions: GEPA, with candidates scored by replay through the gateway."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar
from unicodedata import normalize

from remit.kernel.errors import ConfigError, InvalidInputError, RemitError
from remit.learning.exchanges import is_whole
from remit.learning.grading import Grade
from remit.learning.held_out_replay import Replay
from remit.learning.meta.questions import Requirement, schema_requirements, unstated, words
from remit.learning.proposals.change import with_additions
from remit.ledger import LedgerClient


class SpentError(RemitError):
    """The next call could exceed the budget. The call was not made."""


class Purse:
    """A budget in nano-dollars and calls, held in memory; nothing is refused here.

    Expenses have names: paying one again replaces its cost, so a continued run pays once.

    Args:
        nano: limit of the cost of all expenses together, in nano-dollars.
        calls: limit of the calls of all expenses together.
    """

    def __init__(self, nano: int, calls: int) -> None:
        self.nano, self.calls = nano, calls
        self._spent: dict[str, tuple[int, int]] = {}

    @property
    def spent_nano(self) -> int:
        """The cost of all expenses so far, in nano-dollars."""
        return sum(nano for nano, _ in self._spent.values())

    @property
    def made(self) -> int:
        """The number of calls of all expenses so far."""
        return sum(calls for _, calls in self._spent.values())

    def left_for(self, name: str) -> tuple[int, int]:
        """Return the nano-dollars and the calls that an expense may reach in all.

        Earlier payments of the expense are included. Both numbers may be negative.
        """
        nano, calls = self._spent.get(name, (0, 0))
        return self.nano - self.spent_nano + nano, self.calls - self.made + calls

    def spend(self, name: str, nano: int, calls: int = 1) -> None:
        """Set the total cost of an expense in nano-dollars, and its number of calls."""
        self._spent[name] = nano, calls


_RUN = 5  # words
_SHORTEST = 3  # words of a text that is a quote as a whole
_DIGITS = 7
_CHARACTERS = 8
_TOKEN = re.compile(r"\S{8,}")
_TELLING = re.compile(r"[0-9@]")
_NUMBER = re.compile(r"\d(?:[\s().+/-]{0,3}\d)+")
# Thai, Lao, Burmese, Khmer, Chinese and Japanese put no spaces between words.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]+"
)
_Items = TypeVar("_Items", str, tuple[str, ...])


class Quotes:
    """The texts of exchanges, in pieces that an addition must not quote.

    A piece is five consecutive words, a text of three or four words, a long token with a digit or
    an @, seven consecutive digits however grouped, or eight consecutive characters of a script
    without spaces. An erasure would not find a person's words in a learned prompt.

    Args:
        said: texts that must not be quoted.
        known: texts that may be repeated, such as the contract's own prompt.
    """

    def __init__(self, said: Iterable[str], known: Iterable[str] = ()) -> None:
        self._known = {piece for text in known for piece in _pieces(text)}
        self._said: set[str | tuple[str, ...]] = set()
        for text in said:
            self.add(text)

    def add(self, text: str) -> None:
        """Add the pieces of a text that must not be quoted, without those of known texts."""
        size = min(_RUN, max(_SHORTEST, len(words(normalize("NFKC", text)))))
        self._said.update(set(_pieces(text, size)) - self._known)

    def found_in(self, addition: str) -> bool:
        """Return True if an addition contains a piece of a text that must not be quoted."""
        return not self._said.isdisjoint(_pieces(addition))


def _pieces(text: str, shortest: int = _SHORTEST) -> Iterator[str | tuple[str, ...]]:
    text = normalize("NFKC", text)
    for size in range(shortest, _RUN + 1):
        yield from _windows(words(text), size)
    for token in _TOKEN.findall(text):
        if _TELLING.search(token):
            yield token.strip(".,;:!?()[]\"'`").casefold()
    for number in _NUMBER.findall(text):
        yield from _windows("".join(filter(str.isdigit, number)), _DIGITS)
    for stretch in _UNSPACED.findall(text):
        yield from _windows(stretch, _CHARACTERS)


def _windows(items: _Items, size: int) -> Iterator[_Items]:
    return (items[place : place + size] for place in range(len(items) - size + 1))


_FORMATS = {"date": "YYYY-MM-DD", "date-time": "an RFC 3339 date and time", "uri": "a URL"}


def rules_of(schema: Any, prompt: str, findings: Iterable[Requirement] = ()) -> list[str]:
    """Return an addition, one sentence, for each requirement that the prompt leaves unstated.

    If the schema is of the type ``object`` and the prompt does not mention a JSON object, the first
    addition asks for one. Requirements of the schema come before the findings; equal additions are
    returned once.

    Args:
        schema: the schema that answers are graded by; anything but an object requires nothing.
        prompt: the text of the prompt pack.
        findings: further requirements, such as those of :class:`Question`.
    """
    found, demanded = [], list(findings)
    if isinstance(schema, Mapping):
        if schema.get("type") == "object" and "json object" not in prompt.casefold():
            found.append("Answer with one JSON object and nothing else.")
        demanded = [*schema_requirements(schema, "the answer"), *demanded]
    return list(dict.fromkeys([*found, *map(_rule, unstated(demanded, prompt))]))


def _rule(one: Requirement) -> str:
    place = one.of.partition(": ")[2] or "the answer"
    return {
        "field": f"The answer's JSON has the field {one.name}.",
        "unit": f"Give {place} in {one.phrases[-1][0] if len(one.name) < 2 else one.name}.",
        "format": f"Write {place} as {_FORMATS.get(one.name, one.name)}.",
        "value": f"{one.name} is one of the permitted values of {place}: write it so.",
        "text": f"The answer {one.of.replace('_', ' ')} {one.name}.",
        "length": f"The answer has {one.of.replace('_chars', '')} {one.name} characters.",
        "tool": f"Use the tool {one.name}.",
    }[one.kind]


Propose = Callable[[Sequence[str], str, float, str], Sequence[str] | None]

_COMPONENT = "additions"
_MAX_ADDITIONS = 8


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search for additions.

    Attributes:
        additions: additions of the best candidate; empty if none beat the present prompt.
        before: mean grade of the recorded answers in the validation part.
        after: mean grade of the best candidate's answers.
        candidates: number of sets of additions that were asked, without the present prompt.
        refused: number of proposed additions that quote an exchange, or that
            :func:`with_additions` refuses.
        calls: number of calls, those of earlier runs included.
        spent_nano: cost in nano-dollars, that of earlier runs included.
        ended: ``complete``, or ``budget`` if the budget ended the search early.
    """

    additions: tuple[str, ...]
    before: float
    after: float
    candidates: int
    refused: int
    calls: int
    spent_nano: int
    ended: str


class PromptSearch:
    """The search for additions to a prompt, on exchanges that are not held out.

    An adapter of GEPA (Agrawal et al. 2025, https://arxiv.org/abs/2507.19457). A candidate is a set
    of additions, one line each. The empty candidate is the recorded prompt, whose answers are
    recorded.

    Args:
        replay: returns the replay under some additions; each replay has its own file.
        grade: grades a recorded answer, 0 to 1; ``None`` counts as 0.
        propose: returns further additions, given those of the candidate, the exchange's id, the
            answer's grade and the answer; ``None`` if there will be no more.
        quotes: the pieces that an addition must not contain.
        purse: the budget, which each call of a replay spends.
    """

    def __init__(
        self, ledger: LedgerClient, replay: Callable[[Sequence[str]], Replay], grade: Grade,
        propose: Propose, quotes: Quotes, purse: Purse,
    ) -> None:  # fmt: skip
        self._ledger, self._replay, self._grade = ledger, replay, grade
        self._propose, self._quotes, self._purse = propose, quotes, purse
        self._validation: list[str] = []
        self._scores: dict[tuple[str, ...], float] = {}  # Means of the validation part.
        self._replays: dict[tuple[str, ...], Replay] = {}
        self._refused: set[str] = set()
        self._exhausted = False
        self._error: RemitError | None = None

    def run(self, exchange_ids: Sequence[str]) -> Found:
        """Search for the best additions, and return them with their figures.

        Every second exchange, from the second on, is for validation. Candidates are scored by calls
        through the gateway, which the purse pays. A spent budget ends the search without an error;
        any other RemitError of ``propose`` or a replay is raised.

        Raises:
            ConfigError: GEPA (the extra ``learn``) is not installed.
            InvalidInputError: there are fewer than four exchanges.
        """
        try:
            from gepa.api import optimize
        except ImportError as error:
            raise ConfigError(
                "Prompt learning requires GEPA.", next_step="pip install 'remit[learn]'"
            ) from error
        if len(exchange_ids) < 4:
            raise InvalidInputError(
                f"Only {len(exchange_ids)} gradable exchanges are not held out; at least 4 are "
                "required.",
                next_step="Record more exchanges with the current version of the contract. If "
                "you give references, add these exchanges.",
            )
        train, self._validation = list(exchange_ids[::2]), list(exchange_ids[1::2])
        adapter: Any = self
        try:
            optimize(
                seed_candidate={_COMPONENT: ""}, trainset=train, valset=self._validation,
                adapter=adapter, max_metric_calls=len(self._validation) + 4 * self._purse.calls,
                reflection_minibatch_size=3,
                # Nothing more is proposed, or no candidate can beat the best.
                stop_callbacks=[lambda state: self._exhausted or max(
                    self._scores.values(), default=0.0) >= 1],
                # GEPA's own log quotes prompts and answers.
                logger=SimpleNamespace(log=lambda message: None),
                seed=0,  # The same choices continue an interrupted run.
            )  # fmt: skip
        except SpentError as error:
            self._error = error
        if self._error is not None and not isinstance(self._error, SpentError):
            raise self._error
        before = self._scores.get((), 0.0)
        best = max(self._scores, key=lambda one: (self._scores[one], -len(one)), default=())
        return Found(
            additions=best, before=before, after=self._scores.get(best, before),
            candidates=len(self._replays), refused=len(self._refused), calls=self._purse.made,
            spent_nano=self._purse.spent_nano,
            ended="complete" if self._error is None else "budget",
        )  # fmt: skip

    def evaluate(
        self, batch: list[str], candidate: Mapping[str, str], capture_traces: bool = False
    ) -> Any:
        """Return the scores of a candidate on exchanges, as GEPA's ``EvaluationBatch``.

        Without additions, the recorded answers are graded and no call is made. An exchange without
        a usable answer or grade scores 0. The scores of the validation set are stored. SpentError
        is raised if the budget does not suffice.

        Args:
            candidate: the additions, one a line, under ``additions``.
            capture_traces: True to return exchange, score and answer of each.
        """
        from gepa.core.adapter import EvaluationBatch

        additions = tuple(candidate[_COMPONENT].splitlines())
        answers = self._replayed(additions, batch) if additions else self._recorded(batch)
        scores = [answers[one][0] for one in batch]
        if batch == self._validation:
            self._scores[additions] = math.fsum(scores) / len(scores)
        outputs = [answers[one][1] for one in batch]
        traces = list(zip(batch, scores, outputs, strict=True)) if capture_traces else None
        return EvaluationBatch(outputs=outputs, scores=scores, trajectories=traces)

    def make_reflective_dataset(
        self, candidate: Mapping[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the answer of a batch with the lowest score, the same for each component.

        The answer is an object with ``exchange_id``, ``score`` and ``answer``. The batch must have
        been evaluated with ``capture_traces``.
        """
        exchange_id, score, answer = min(eval_batch.trajectories, key=lambda one: one[1])
        record = {"exchange_id": exchange_id, "score": score, "answer": answer}
        return {name: [record] for name in components_to_update}

    def propose_new_texts(
        self,
        candidate: Mapping[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """Return the candidate with further additions, without those that quote an exchange.

        The additions are the lines of the text under ``additions``. A RemitError of ``propose`` is
        stored and ends the search. Refused additions are counted. At most 8 additions are returned,
        or as many as there were or were added now; the earliest are dropped.
        """
        additions = candidate[_COMPONENT].splitlines()
        (seen,) = reflective_dataset[_COMPONENT]
        self._quotes.add(seen["answer"])  # This answer is not recorded among the exchanges.
        proposed: Sequence[str] | None = None
        try:
            proposed = self._propose(additions, seen["exchange_id"], seen["score"], seen["answer"])
        except RemitError as error:  # GEPA would ignore the error.
            self._error = error
        self._exhausted = proposed is None
        new = [" ".join(one.split()) for one in proposed or ()]
        made = list(additions)
        for one in dict.fromkeys(new):
            if one in made:
                continue
            with suppress(InvalidInputError):
                with_additions("", [one])
                # Together with those before it: a quote may be split over two.
                if not self._quotes.found_in(" ".join([*made, one])):
                    made.append(one)
                    continue
            self._refused.add(one)
        # A schema may require more than the usual number.
        most = max(_MAX_ADDITIONS, len(additions), len(made) - len(additions))
        return {_COMPONENT: "\n".join(made[-most:])}

    def _recorded(self, batch: Sequence[str]) -> dict[str, tuple[float, str]]:
        found = {}
        for entry in self._ledger.read_many(set(batch)):
            answer = entry.metadata["response"]
            if is_whole(answer):
                found[entry.id] = (self._grade(entry, str(answer)) or 0.0, str(answer))
        return {one: found.get(one, (0.0, "")) for one in batch}

    def _replayed(
        self, additions: tuple[str, ...], batch: Sequence[str]
    ) -> dict[str, tuple[float, str]]:
        name = "\n".join(additions)
        nano, calls = self._purse.left_for(name)
        if additions not in self._replays:  # A replay reads what is recorded of it once.
            self._replays[additions] = self._replay(additions)
        result = self._replays[additions].run(
            dict.fromkeys(batch), held_out=False, budget_nano=nano, calls=calls
        )
        self._purse.spend(name, result.spent_nano, result.calls)
        if result.ended == "budget":
            raise SpentError("The budget of the search is spent.")
        found = dict.fromkeys(batch, (0.0, ""))
        for pair in result.pairs:
            answer = self._ledger.read(pair.replayed_id).metadata["response"]
            found[pair.exchange_id] = (pair.after, str(answer) if is_whole(answer) else "")
        return found
