"""``python -m index_tests.crashing DIRECTORY OPERATION``: dies at each step in turn.

For step N of the operation a copy ``DIRECTORY/N`` of ``DIRECTORY/start`` is made, and a child
works on it until SIGKILL stops it at its Nth call that changes the disk. Prints how many steps
there are.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from index_tests.making import client, publisher, root_json

# Not fsync: what a killed process wrote is there all the same.
_STEPS = ("replace", "rename", "symlink", "unlink", "mkdir", "rmdir")


def work(top: Path, operation: str) -> None:
    match operation:
        case "create":
            publisher(top).create()
        case "publish":
            publisher(top).publish(top / "PKG-EXAMPLE-001-1.1.0.tar.gz")
        case "rotate":
            publisher(top).rotate("targets")
        case "add":
            client(top).add(root_json(top))
        case "refresh":
            client(top).refresh()


def dying(step: int) -> Callable[[Any], Any]:
    count = 0

    def wrap(function: Any) -> Any:
        def counted(*arguments: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **more)

        return counted

    return wrap


def main(top: Path, operation: str) -> None:
    for step in range(1, 1000):
        place = top / str(step)
        shutil.copytree(top / "start", place, symlinks=True)
        child = os.fork()
        if child == 0:
            wrap = dying(step)
            for name in _STEPS:
                setattr(os, name, wrap(getattr(os, name)))
            work(place, operation)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            shutil.rmtree(place)
            print(step - 1)
            return
        assert os.WTERMSIG(status) == signal.SIGKILL, status


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
