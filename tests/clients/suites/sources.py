"""``python -m tests.clients.suites.sources DIRECTORY``: the test suites of the SDKs.

The source distributions of ``sources.txt`` are downloaded and checked against their hashes; their
tests are unpacked into ``DIRECTORY/openai`` and ``DIRECTORY/anthropic``.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

_LIST = Path(__file__).with_name("sources.txt")
_PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps",
        "--no-binary", "openai,anthropic", "--require-hashes", "-r", str(_LIST))  # fmt: skip


def main() -> None:
    """Download the suites and unpack them."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, *_PIP, "--dest", scratch], check=True)
        for archive in Path(scratch).glob("*.tar.gz"):
            name = archive.name.partition("-")[0]
            with tarfile.open(archive) as members:
                for member in members:
                    _, _, path = member.name.partition("/")
                    if path.startswith("tests/"):
                        member.name = f"{name}/{path}"
                        members.extract(member, target, filter="data")


if __name__ == "__main__":
    main()
