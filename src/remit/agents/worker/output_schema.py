"""The output schema of an order: described to a model, checked, and repaired once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic_core import from_json

from remit.agents.worker.failures import WorkFailedError
from remit.agents.workorders import PartialOutput
from remit.kernel.exchange import Message
from remit.kernel.json_text import JsonTextError, load_answer
from remit.kernel.loops import call_in_thread
from remit.kernel.schemas import first_problem

_REPAIR_PREFIX = "Your answer could not be used: "
_STEP = 20  # A partial text is parsed again after growing by a twentieth.


@dataclass(eq=False, repr=False)
class OutputSchema:
    """The output schema of one order, and the text of the answer that streams at present.

    :meth:`begin` and :meth:`take` follow the stream; :meth:`problem` and :meth:`repair` treat the
    complete answer.

    Args:
        schema: JSON Schema of the answer.
        check: returns what is wrong with data, or an empty text; the schema decides if None.
        emit: receives the partial answer while it streams.
    """

    _schema: Mapping[str, Any]
    _check: Callable[[Any], str] | None
    _emit: Callable[[PartialOutput], None]
    _text: str = field(default="", init=False)
    _next: int = field(default=0, init=False)

    def with_schema(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages followed by a user's request for JSON that fits the schema.

        Models without JSON mode need such a request.

        Args:
            messages: the conversation, which is not changed.
        """
        return [*messages, {"role": "user", "content": self._instruction()}]

    def begin(self) -> None:
        """Discard the streamed text, before another answer; nothing is emitted."""
        self._text, self._next = "", 0

    def take(self, text: str) -> None:
        """Take the next piece of the streamed text, and emit the partial data if it parses.

        The data begins at the first ``{``. A long text is parsed again only after growing by a
        twentieth.

        Args:
            text: what arrived since the last call.
        """
        self._text += text
        if len(self._text) < self._next:
            return
        self._next = len(self._text) + len(self._text) // _STEP
        begin = self._text.find("{")
        if begin >= 0:
            try:
                data = from_json(self._text[begin:], allow_partial="trailing-strings")
            except ValueError:  # Prose, or the end of a code fence.
                return
            self._emit(PartialOutput(data))

    async def problem(self, text: str) -> str:
        """Return why an answer's text is not usable; empty if it is.

        The text must be JSON that repeats no name, and pass the check; if there is no check, fit
        the schema. The check runs in a thread, as it may take long; its errors are raised.

        Args:
            text: text of the answer, with or without a code fence around the JSON.
        """
        try:
            data = load_answer(text)
        except JsonTextError as error:
            reason = error.message.replace("The text", "it", 1).rstrip(".")
            return reason if text.strip() else "it is empty"
        check = self._check or functools.partial(first_problem, self._schema)
        return await call_in_thread("remit-answer", lambda: check(data))

    def repair(self, messages: list[Message], answer: str, problem: str) -> None:
        """Append an unusable answer and a request for a better answer to the messages.

        Args:
            messages: the conversation; extended in place.
            answer: the text of the answer.
            problem: why it is not usable.

        Raises:
            WorkFailedError: ``output_schema_invalid``, if this was requested before.
        """
        for message in messages:
            content = message["content"]
            if isinstance(content, str) and content.startswith(_REPAIR_PREFIX):
                raise WorkFailedError(
                    "output_schema_invalid",
                    f"both attempts returned an answer that cannot be used: {problem}",
                )
        messages.append({"role": "assistant", "content": answer})
        asked = f"{_REPAIR_PREFIX}{problem}.\n\n{self._instruction()}"
        messages.append({"role": "user", "content": asked})

    def _instruction(self) -> str:
        schema = orjson.dumps(self._schema).decode()
        return f"Answer with JSON alone, without a code fence, that fits this schema:\n{schema}"
