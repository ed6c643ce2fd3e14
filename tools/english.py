"""Check that docstrings, comments and names read as plain English: ``python -m tools.english``.

The rules stand in docs/contributing.md. Each room has a ceiling for the number of places that
break a rule, in ``[tool.remit.english]`` of pyproject.toml. The command fails if a room is above
its ceiling. ``--list ROOM`` prints each place, ``--lower`` lowers the ceilings to the present
numbers.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "remit"
PAGES = ("README.md", "docs")

_OPENER = re.compile(
    r"(Those|What|Whose|Of|As|Who|Where|From|How|Which|It|They|Them|One|All|The same|By|But|With"
    r"|Until)\b"
)
_PHRASE = re.compile(
    r"\bon record\b|\bbut for\b|\bbesides?\b|\bmeanwhile\b|\b(go|goes|gone|going|went) on\b"
    r"|\bwhat (is|was|came|comes|has|it|they|a|an|the|one)\b"
    r"|\bwhere (it|there|one|they|that|none|nothing)\b|\bby (it|these|those|which|whom)\b"
    r"|[;:,] (one that|what|those that|who)\b|\bhas left\b|\bcomes? to\b"
)
_FRAGMENT = re.compile(
    r"# (of|for|to|by|until|as|what|who|where|that|from|with|without|in|at|so|it|they|is|are|was"
    r"|were|less|else|another|one|others|their) "
)
_NOUN_OPENER = re.compile(r"(The|A|An|What|Whether|One|Those|All|Some)\b")
_PARTICIPLE = re.compile(r"(ing|ed|fore|side)$")
_FIELD_WORDS = {  # participles that are the field's own nouns
    "authoring", "billing", "embedded", "encoding", "grading", "learning", "logging", "naming",
    "parsing", "pricing", "routing", "serving", "settings", "streaming", "string", "testing",
    "timing", "tracing", "warning",
}  # fmt: skip
_MAX_WORDS = 25
_MIN_WORDS = 3

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    """A place that breaks a rule."""

    path: Path
    line: int
    rule: str
    text: str


class Count(NamedTuple):
    """The docstrings of a room, and the findings in its files."""

    docstrings: int
    findings: list[Finding]

    @property
    def places(self) -> int:
        """Number of places with a finding."""
        return len({(one.path, one.line) for one in self.findings})


def first_sentence(doc: str) -> str:
    """Return the first sentence of a docstring on one line."""
    return re.split(r"(?<=[.!?])\s", doc.split("\n\n")[0].replace("\n", " "))[0]


def broken_rules(node: _Documented, doc: str) -> Iterator[str]:
    """Yield the rules that a docstring breaks."""
    first = first_sentence(doc)
    words = len(re.findall(r"\w+", first))
    if _OPENER.match(first):
        yield "opens with a pronoun or a relative clause"
    if _PHRASE.search(doc.split("\n\n")[0]):
        yield "uses a phrase that is not plain"
    if words > _MAX_WORDS:
        yield f"first sentence over {_MAX_WORDS} words"
    if words < _MIN_WORDS:
        yield f"under {_MIN_WORDS} words"
    if len(re.findall(r"[;:] ", first)) >= 2:
        yield "two or more ; or : in the first sentence"
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.returns is None:
        return
    returned = ast.unparse(node.returns)
    if first.startswith("Whether") and not re.search("bool|TypeGuard|TypeIs", returned):
        yield "says Whether and returns no bool"
    if returned == "None" and not node.decorator_list and _NOUN_OPENER.match(first):
        yield "a procedure described as a thing"


def findings_of(path: Path) -> Count:
    """Return the number of docstrings of a module and its findings, in the order of lines."""
    text = path.read_text(encoding="utf-8")
    found: list[Finding] = []
    docstrings = 0
    if _PARTICIPLE.search(path.stem) and path.stem not in _FIELD_WORDS:
        found.append(Finding(path, 1, "module named by a participle or adverb", path.stem))
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, _Documented) or not (doc := ast.get_docstring(node)):
            continue
        docstrings += 1
        line = 1 if isinstance(node, ast.Module) else node.lineno
        found += [
            Finding(path, line, rule, first_sentence(doc)) for rule in broken_rules(node, doc)
        ]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and _FRAGMENT.match(token.string):
            found.append(Finding(path, token.start[0], "comment is a fragment", token.string))
    return Count(docstrings, sorted(found, key=lambda one: one.line))


def counts() -> dict[str, Count]:
    """Return the count of each room of ``src/remit``; modules outside a room count as ``remit``."""
    found: dict[str, Count] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).parts
        room = parts[0] if len(parts) > 1 else "remit"
        one = findings_of(path)
        so_far = found.get(room, Count(0, []))
        found[room] = Count(so_far.docstrings + one.docstrings, [*so_far.findings, *one.findings])
    return found


def page_findings() -> Count:
    """Return the sentences of README and docs, and those that use a phrase that is not plain."""
    found: list[Finding] = []
    sentences = 0
    for place in PAGES:
        path = ROOT / place
        for page in [path] if path.is_file() else sorted(path.rglob("*.md")):
            prose = re.sub(r"(?s)```.*?```", lambda code: "\n" * code[0].count("\n"),
                           page.read_text(encoding="utf-8"))  # fmt: skip
            for number, line in enumerate(prose.split("\n"), 1):
                for sentence in re.split(r"(?<=[.!?])\s+", line.strip()):
                    sentences += bool(sentence)
                    if _PHRASE.search(re.sub(r"`[^`]*`", "", sentence)):
                        found.append(
                            Finding(page, number, "uses a phrase that is not plain", sentence)
                        )
    return Count(sentences, found)


def ceilings() -> dict[str, int]:
    """Return the ceiling of each room."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    table: dict[str, int] = project["tool"]["remit"]["english"]
    return table


def lower(places: dict[str, int], known: dict[str, int]) -> None:
    """Write the ceilings that are above the number of places anew; a ceiling never rises."""
    path = ROOT / "pyproject.toml"
    before, head, after = path.read_text(encoding="utf-8").partition("[tool.remit.english]")
    for room, number in places.items():
        ceiling = min(known.get(room, number), number)
        after = re.sub(rf"(?m)^{room} = \d+$", f"{room} = {ceiling}", after, count=1)
    path.write_text(before + head + after, encoding="utf-8")


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", metavar="ROOM", help="print every place in a room, or in docs")
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to the shares")
    options = parser.parse_args()
    known = ceilings()
    found = {**counts(), "docs": page_findings()}
    if options.lower:
        lower({room: count.places for room, count in found.items()}, known)
        known = ceilings()
    failed = False
    for room, count in sorted(found.items()):
        ceiling = known.get(room, 0)
        over = count.places > ceiling
        failed |= over
        share = 100 * count.places / max(1, count.docstrings)
        print(f"{room:10} {count.places:4} places, {share:4.1f} %, ceiling {ceiling}")
        if options.list == room or (over and not options.list):
            for one in count.findings:
                place = one.path.relative_to(ROOT)
                print(f"  {place}:{one.line}: {one.rule}: {one.text[:110]}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
