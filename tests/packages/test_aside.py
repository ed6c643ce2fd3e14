"""A root that an earlier version made, with files where packages put theirs."""

from __future__ import annotations

from pathlib import Path

from remit.kernel.root import Root
from remit.packages.shipped import ASIDE_FOLDER
from remit.runtime import Runtime, make_root

_CONTRACT = "HO1/contracts/PRC-EXECUTE-001.json"


def test_what_is_in_the_way_is_moved_and_never_lost(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    root.create()
    (root.path / "HO1/contracts").mkdir()
    (root.path / _CONTRACT).write_text("edited by hand")
    make_root(root)
    assert (root.path / ASIDE_FOLDER / _CONTRACT).read_text() == "edited by hand"
    with Runtime.open(root.path) as runtime:
        assert runtime.agent("a").tools == ()
    # Once something is installed, a changed file stays where it is, and is not used.
    (root.path / _CONTRACT).write_text("edited again")
    make_root(root)
    assert (root.path / _CONTRACT).read_text() == "edited again"
