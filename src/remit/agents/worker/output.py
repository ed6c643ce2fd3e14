"""An answer held to a schema of its order: asked for, read as it streams, checked, repaired."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from pydantic_core import from_json

from remit.agents.worker.execution import WorkFailedError
from remit.agents.workorders import PartialOutput
from remit.kernel.exchange import Message
from remit.kernel.json_text import JsonTextError, load_answer
from remit.kernel.loops import call_in_thread
from remit.kernel.schemas import first_problem

_REPAIR = "Your answer could not be used: "
_STEP = 20  # a longer text is read again when it has grown by a twentieth


class HeldOutput:
    """The answer of one order that has an output schema.

    Args:
        schema: JSON Schema of the answer.
        check: says what is wrong with data; the schema alone decides when left out.
        emit: hears the answer as far as it has come.
    """

    def __init__(
        self,
        schema: Mapping[str, Any],
        check: Callable[[Any], str] | None,
        emit: Callable[[PartialOutput], None],
    ) -> None:
        self._schema = schema
        self._check = check
        self._emit = emit
        self._text, self._next = "", 0

    def described(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with the schema in words, for a model that is not held to it."""
        return [*messages, {"role": "user", "content": self._asked_for()}]

    def begin(self) -> None:
        """Expect the text of another answer."""
        self._text, self._next = "", 0

    def take(self, text: str) -> None:
        """The next piece of the answer's text."""
        self._text += text
        if len(self._text) < self._next:
            return
        self._next = len(self._text) + len(self._text) // _STEP
        begin = self._text.find("{")
        if begin >= 0:
            try:
                data = from_json(self._text[begin:], allow_partial="trailing-strings")
            except ValueError:  # prose, or the end of a fence
                return
            self._emit(PartialOutput(data))

    async def problem(self, text: str) -> str:
        """Return why an answer's text cannot be used; empty if it can."""
        try:
            data = load_answer(text)
        except JsonTextError as error:
            why = error.message.replace("The text", "it", 1).rstrip(".")
            return why if text.strip() else "it is empty"
        check = self._check or functools.partial(first_problem, self._schema)
        # No check may hold up the loop.
        return await call_in_thread("remit-answer", lambda: check(data))

    def data(self, text: str) -> Any:
        """The data of an answer's text that has no problem."""
        return load_answer(text)

    def repair(self, messages: list[Message], answer: str, problem: str) -> None:
        """Add an answer that cannot be used, and the request for another.

        Raises:
            WorkFailedError: ``output_schema_invalid``: it was the second one.
        """
        for message in messages:
            content = message["content"]
            if isinstance(content, str) and content.startswith(_REPAIR):
                raise WorkFailedError("output_schema_invalid", f"the answer, twice: {problem}")
        messages.append({"role": "assistant", "content": answer})
        asked = f"{_REPAIR}{problem}.\n\n{self._asked_for()}"
        messages.append({"role": "user", "content": asked})

    def _asked_for(self) -> str:
        schema = orjson.dumps(self._schema).decode()
        return f"Answer with JSON alone, without a code fence, that fits this schema:\n{schema}"
