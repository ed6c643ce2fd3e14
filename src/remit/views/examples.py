"""Which messages of a recorded prompt are the examples of its contract's pack."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from remit.contracts import ContractError, ContractLoader
from remit.kernel.errors import RemitError
from remit.views import wire, wording
from remit.views.wire import Line

Pairs = Sequence[tuple[str, str]]
"""What is asked and what is answered, of each example."""


def examples_of(loader: ContractLoader | None) -> Callable[[str, str], Pairs]:
    """What finds the examples of a contract's installed pack, by its id and version.

    Where the contract or the pack is not there, or cannot be used, there are none.
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
    """The messages of a call's prompt in order, in parts: how many examples a part is, 0 where it
    is none, and its messages.

    Args:
        find: of :func:`examples_of`.
        call: a step of a journey.
    """
    if "wire" in call:
        lines = wire.said(call)
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
