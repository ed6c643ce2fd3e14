"""The program that Remit and its peers have in common: Remit's is short, is killed, and goes on."""

from __future__ import annotations

from pathlib import Path

from benchmarks.agents import side_by_side


def test_remits_program_is_no_longer_than_the_shortest_and_two_lines() -> None:
    sizes = {name: side_by_side.counted(program) for name, program in side_by_side.ALL.items()}
    remit = sizes.pop("Remit")
    assert remit.lines <= min(size.lines for size in sizes.values()) + 2
    assert remit.files == 1


def test_killed_while_it_waits_it_goes_on_to_the_typed_answer(tmp_path: Path) -> None:
    outcome = side_by_side.run(side_by_side.ALL["Remit"], tmp_path)
    assert outcome.printed == "text='Order 1002 is refunded.' refunded=True"
    assert outcome.calls == 3
