"""After any sequence of appends, archives and erasures all verifies, is read and is proved."""

from __future__ import annotations

import importlib.util
import random
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import hypothesis.strategies as st

from remit.ledger import ErasureError, LedgerClient, entry_id
from remit.ledger.archive import Archive, archive, check_archive, cut_at, erase_archived, joined
from tests.ledger.archive.writing import conversation_of, unguarded
from tests.support.stores import SIGNER

_SCRIPT = Path(__file__).parents[3] / "docs/verify_standalone.py"
_PEOPLE = 3


def _standalone() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_standalone", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_STEPS = st.lists(st.sampled_from(["grow", "archive", "subject", "session", "entry"]), min_size=3,
                  max_size=6)  # fmt: skip


@hypothesis.settings(max_examples=3)
@hypothesis.given(_STEPS, st.randoms(use_true_random=False))
@hypothesis.example(["archive", "subject", "grow", "archive", "entry", "session"], random.Random(3))
def test_any_sequence_verifies(steps: list[str], chance: random.Random) -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        LedgerClient(Path(scratch, "ledger.db"), signer=SIGNER) as client,
    ):
        world = _World(client, Path(scratch, "archive"), chance)
        world.grow()
        for step in steps:
            getattr(world, step)()
        world.check()


class _World:
    def __init__(self, client: LedgerClient, directory: Path, chance: random.Random) -> None:
        self._client = client
        self._directory = directory
        self._chance = chance
        self._records: dict[str, bytes] = {}
        self._said: dict[str, str] = {}  # by entry, its answer; erased ones are taken out
        self._of: dict[str, tuple[str, str]] = {}  # session and person of an entry
        self._script = _standalone()

    def grow(self) -> None:
        """Sessions that are new, and some that go on, interleaved; enough for a range more."""
        names = [f"SES-{self._chance.randrange(60)}" for _ in range(40)]
        for name in names:
            turns = self._chance.randint(3, 8)
            entries = conversation_of(name, turns)
            person = f"person-number-{int(name[4:]) % _PEOPLE}"
            for one in self._client.write_many(entries, subject_id=person):
                self._of[one] = (name, person)
            for entry in entries:
                self._records[entry.id] = self._client.read_record(entry.id)
                self._said[entry.id] = str(entry.metadata["response"])

    def archive(self) -> None:
        size = self._client.count()
        end = cut_at(self._client, str(self._chance.randint(size // 2, size)))
        archive(
            self._client,
            end,
            self._directory,
            by="a",
            carry=lambda *_: {},
            guard=unguarded,
            kind="jsonl",
        )

    def subject(self) -> None:
        person = f"person-number-{self._chance.randrange(_PEOPLE)}"
        self._erase(subject_id=person)
        self._forget(lambda of: of[1] == person)

    def session(self) -> None:
        name = f"SES-{self._chance.randrange(60)}"
        self._erase(session_id=name)
        self._forget(lambda of: of[0] == name)

    def entry(self) -> None:
        one = self._chance.choice(list(self._of))
        self._erase(entry_id=one)
        # What is said there, is said wherever the session says it again.
        said = self._said.get(one)
        name = self._of[one][0]
        for other in [key for key, of in self._of.items() if of[0] == name]:
            if other == one or self._said.get(other) == said:
                self._said.pop(other, None)

    def _erase(self, **which: Any) -> None:
        try:
            if self._client.archived_to:
                erase_archived(
                    self._client, Archive([self._directory]), **which, reason="r", guard=unguarded
                )
            else:
                self._client.erase(**which, reason="r")
        except ErasureError:
            pass  # nothing is there

    def _forget(self, is_gone: Any) -> None:
        for one, of in self._of.items():
            if is_gone(of):
                self._said.pop(one, None)

    def check(self) -> None:
        client = self._client
        assert client.verify().problems == []
        entries = {entry.id: entry for entry in client.query()}
        if client.archived_to:
            assert check_archive(client, [self._directory]).problems == []
            found = Archive([self._directory])
            entries = {entry.id: entry for entry in joined(client, found, None)}
        assert len(entries) == client.count()
        assert list(entries) == [entry_id(seq) for seq in range(client.count())]
        for one in self._of:
            assert entries[one].metadata["session_id"] == self._of[one][0]
            if one in self._said:
                said = entries[one].metadata["response"]
                # An erasure of an entry takes what quotes it, which the model does not know.
                assert said == self._said[one] or str(said).startswith("[content erased")
            else:
                assert str(entries[one].metadata["response"]).startswith("[content erased under")
        key = str(SIGNER.verifier_key)
        for one in self._chance.sample(list(self._records), 6):
            assert self._script.check_proof(client.prove(one), self._records[one], key)
