"""Examples in recorded prompts: the messages that come from the contract's prompt pack."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from remit.contracts import ContractError, ContractLoader
from remit.kernel.errors import RemitError
from remit.views import wire_text, wording
from remit.views.wire_text import Line

Pairs = Sequence[tuple[str, str]]
"""What is asked and what is answered, of each example."""


def examples_of(loader: ContractLoader | None) -> Callable[[str, str], Pairs]:
    """Return a function that gives the examples of a contract's pack by contract id and version.

    The function takes an empty version for the newest, and returns pairs of question and answer.
    The function returns no examples if the contract or the pack is missing or unusable; it raises
    no error for that. Each result is cached, an empty one too.

    Args:
        loader: the loader of the root's contracts; ``None`` for no examples at all.
    """

    @functools.cache
    def found(contract_id: str, version: str) -> Pairs:
        if loader is None or not contract_id:
            return ()
        try:
            contract = loader.load(contract_id, version or None)
            return loader.load_pack(contract.prompt_pack_id).examples()
        except (RemitError, ContractError, OSError):
            return ()

    return found


def prompt_parts(
    find: Callable[[str, str], Pairs], call: Mapping[str, Any]
) -> Iterator[tuple[int, list[Line]]]:
    """Yield the messages of a call's prompt in parts: the number of examples and the messages.

    Messages that equal an example of the contract's pack form parts of their own. The number is 0
    for a part without examples. A call without a prompt gives nothing.

    Args:
        find: the function that :func:`examples_of` returned.
        call: a step of a journey.
    """
    if "wire" in call:
        lines = wire_text.said(call)
    else:
        lines = [Line(role, "", said) for role, said in wording.messages_of(call.get("prompt"))]
    named = (call.get("contract_id"), call.get("contract_version"))
    contract_id, version = (one if isinstance(one, str) else "" for one in named)
    known = set(find(contract_id, version))
    rest: list[Line] = []
    shown: list[Line] = []
    at = 0
    while at < len(lines):
        pair = lines[at : at + 2]
        if known and _is_pair(pair) and (pair[0].content, pair[1].content) in known:
            if rest:
                yield 0, rest
                rest = []
            shown += pair
            at += 2
            continue
        if shown:
            yield len(shown) // 2, shown
            shown = []
        rest.append(lines[at])
        at += 1
    if shown:
        yield len(shown) // 2, shown
    if rest:
        yield 0, rest


def _is_pair(lines: Sequence[Line]) -> bool:
    return [line.role for line in lines] == ["user", "assistant"] and all(
        isinstance(line.content, str) and not line.label for line in lines
    )
