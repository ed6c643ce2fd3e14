"""Tools of installed distributions: imported when named, and not before."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remit.agents.tools import ToolDispatcher, ToolError, UnknownToolError
from remit.kernel.settings import default_settings

Install = Callable[..., None]

MODULE = '''
import pathlib
pathlib.Path(__file__).with_suffix(".imported").touch()
import remit

@remit.tool(on_unknown="retry")
def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"

def plain(n: int = 2) -> int:
    """Double it."""
    return n * 2

number = 5
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution of one module: ``install(name, source, entry_point=object, …)``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules: list[str] = []

    def installed(name: str, source: str = MODULE, **points: str) -> None:
        module = f"{name}_module"
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{point} = {module}:{what}" for point, what in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[remit.tools]", *lines, ""]))
        importlib.invalidate_caches()

    yield installed
    for module in modules:
        sys.modules.pop(module, None)


def _dispatcher() -> ToolDispatcher:
    return ToolDispatcher([], default_settings().tools)


def test_only_what_is_named_is_imported(install: Install, tmp_path: Path) -> None:
    install("forecast", weather="weather", plain="plain")
    trace = tmp_path / "forecast_module.imported"
    dispatcher = _dispatcher()
    with pytest.raises(UnknownToolError):
        dispatcher.tools(["other"])
    assert not trace.exists()
    tool = dispatcher.tools(["weather"])[0]
    assert trace.exists()
    assert tool.on_unknown == "retry"
    assert dispatcher.execute("weather", {"city": "Ulm"}).output == "rain in Ulm"


def test_a_plain_function_becomes_a_tool(install: Install) -> None:
    install("doubling", plain="plain")
    dispatcher = _dispatcher()
    assert dispatcher.execute("plain", {"n": 4}).output == 8
    assert dispatcher.tools(["plain"])[0].description == "Double it."


def test_what_is_given_goes_before_what_is_installed(install: Install, tmp_path: Path) -> None:
    install("forecast", weather="weather")
    from remit.agents.tools import Tool

    own = Tool("weather", "d", {"type": "object"}, lambda: "own")
    dispatcher = ToolDispatcher([own], default_settings().tools)
    assert dispatcher.execute("weather", {}).output == "own"
    assert not (tmp_path / "forecast_module.imported").exists()


@pytest.mark.parametrize(
    ("source", "what", "word"),
    [
        (MODULE, "weather", "has the id 'weather'"),
        (MODULE, "number", "is a int"),
        (MODULE, "nothing", "AttributeError"),
        ("raise SystemExit(1)", "x", "SystemExit"),
        ("1/0", "x", "ZeroDivisionError"),
        ("import no_such_module", "x", "ModuleNotFoundError"),
        ("def bad(a): ...", "bad", "has no type"),
    ],
)
def test_what_cannot_be_used_is_a_clear_error(
    install: Install, source: str, what: str, word: str
) -> None:
    install("broken", source, thing=what)
    dispatcher = _dispatcher()
    with pytest.raises(ToolError) as caught:
        dispatcher.tools(["thing"])
    assert word in str(caught.value)
    result = dispatcher.execute("thing", {})
    assert result.status == "error"
    assert word in result.error


def test_two_that_offer_the_same_are_refused(install: Install) -> None:
    install("first", plain="plain")
    install("second", plain="plain")
    with pytest.raises(ToolError, match="first, second"):
        _dispatcher().tools(["plain"])
