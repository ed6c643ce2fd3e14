"""``python -m tools.site [--version V] [--out DIR]``: the documentation as static files.

The pages are taken as they lie in the repository, so that links among them, and to files beside
them, hold on both sides. Any link that leads nowhere ends it with 1. ``DIR/V`` is one version;
``DIR/index.html`` leads to the newest.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.site.openapi import page

TOP = Path(__file__).parents[2]
HERE = Path(__file__).parent
TAKEN = ("docs", "deploy", "benchmarks", "examples", ".github")
FILES = ("*.md", "LICENSE", "Makefile", "pyproject.toml")
_LINK = re.compile(r"\[([^\]\[]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def build(out: Path, version: str, document: Path) -> None:
    """Write one version of the site; raises SystemExit where a link leads nowhere."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "source")
        for name in TAKEN:
            if (TOP / name).is_dir():
                shutil.copytree(
                    TOP / name,
                    source / name,
                    ignore=shutil.ignore_patterns("__pycache__", "*.py[co]"),
                )
        for pattern in FILES:
            for path in TOP.glob(pattern):
                shutil.copy(path, source / path.name)
        shutil.copy(HERE / "index.md", source)
        shutil.copy(HERE / "conf.py", source)
        shutil.copy(document, source / "openapi.json")
        described = json.loads(document.read_text("utf-8"))
        (source / "docs/openapi.md").write_text(page(described), "utf-8")
        for path in source.rglob("*.md"):
            _without_folders(path)
        made = Path(scratch, "made")
        done = subprocess.run(
            [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "auto", "-b", "html",
             str(source), str(made)],
            env={**os.environ, "REMIT_DOCS_VERSION": version}, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit("The documentation has links that lead nowhere, or other faults.")
        for name in (".doctrees", ".buildinfo"):
            path = made / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        shutil.rmtree(out / version, ignore_errors=True)
        out.mkdir(parents=True, exist_ok=True)
        shutil.move(made, out / version)
    _lead(out, version)


def _without_folders(path: Path) -> None:
    """Links to folders, which a site has no page for, lead to their README, or are text alone."""

    def shown(found: re.Match[str]) -> str:
        text, target, heading = found.groups()
        if "://" in target or not (path.parent / target).is_dir():
            return found[0]
        page = f"{target.rstrip('/')}/README.md"
        return f"[{text}]({page}{heading or ''})" if (path.parent / page).is_file() else str(text)

    before = path.read_text("utf-8")
    after = _LINK.sub(shown, before)
    if after != before:
        path.write_text(after, "utf-8")


def _lead(out: Path, newest: str) -> None:
    """Write what leads to the newest version, and the list of all."""
    versions = sorted(path.name for path in out.iterdir() if path.is_dir())
    links = "\n".join(f'<li><a href="{name}/index.html">{name}</a></li>' for name in versions)
    (out / "index.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Remit</title>\n'
        f'<meta http-equiv="refresh" content="0; url={newest}/index.html">\n'
        f"<h1>Remit</h1><ul>\n{links}\n</ul></html>\n", "utf-8",
    )  # fmt: skip


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("--version", default="latest", help="the folder's name (default: latest)")
    parser.add_argument("--out", type=Path, default=Path("site"), help="folder (default: site)")
    parser.add_argument("--openapi", type=Path, required=True, help="the OpenAPI document")
    given = parser.parse_args()
    build(given.out, given.version, given.openapi)
    pages = len(list((given.out / given.version).rglob("*.html")))
    print(f"{given.out / given.version}: {pages} pages, every link leads somewhere")


if __name__ == "__main__":
    main()
