"""Which module needs which: read from the code, not run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


class Imports:
    """What modules import as soon as they are imported themselves."""

    def __init__(self, modules: Mapping[str, Path]) -> None:
        self._modules = modules
        self._named = {name: list(self._statements(name)) for name in modules}

    def found(self) -> Iterator[tuple[str, str]]:
        """Module, and the module where what it imports is written."""
        for module, imported in self._named.items():
            for source, name in imported:
                # A door shows what lies behind it; it does not need it.
                if not (self._is_door(module) and source.startswith(f"{module}.")):
                    yield module, self._written(source, name)

    def _statements(self, module: str) -> Iterator[tuple[str, str]]:
        waiting: list[ast.AST] = [ast.parse(self._modules[module].read_bytes())]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                continue
            if isinstance(node, ast.Import):
                yield from ((one.name, "") for one in node.names if one.name in self._modules)
            elif isinstance(node, ast.ImportFrom) and node.module in self._modules:
                yield from self._from(node.module, node.names)
            waiting.extend(ast.iter_child_nodes(node))

    def _from(self, source: str, names: Iterable[ast.alias]) -> Iterator[tuple[str, str]]:
        for one in names:
            inner = f"{source}.{one.name}"
            yield (inner, "") if inner in self._modules else (source, one.name)

    def _written(self, source: str, name: str) -> str:
        """Past the doors that only show it."""
        while name and self._is_door(source):
            shown = {shown: inner for inner, shown in self._named[source] if shown}
            if name not in shown:
                break
            source = shown[name]
        return source

    def _is_door(self, module: str) -> bool:
        return self._modules[module].name == "__init__.py"
