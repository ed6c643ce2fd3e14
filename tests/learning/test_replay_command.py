"""``remit learn replay`` on the real gateway: budget, drift, kill -9, going on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.agents.queue import Submission
from remit.gateway.auth import Identity
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.loops import run_blocking
from remit.learning import ChangedRequests, is_held_out
from remit.learning.proposals import Change, Learner
from remit.learning.routes import calibrate
from remit.operations.files import read_references
from remit.providers.prices import PriceTable
from tests.agents.queue.test_workers import working
from tests.learning.conftest import (
    CONTRACT,
    MODEL,
    RULE,
    answer,
    becomes_another,
    killed_at,
    record,
)
from tests.learning.proposals.conftest import gain
from tests.support.commands import remit_json, run_remit
from tests.support.scripted import Scripted


def arguments(root: Path, usd: float) -> list[str]:
    return [
        "learn", "replay", "--contract", CONTRACT, "--change", str(root.parent / "change.toml"),
        "--schema", str(root.parent / "schema.json"), "--usd", str(usd), "--root", str(root),
    ]  # fmt: skip


def replayed(root: Path, usd: float) -> dict[str, Any]:
    return remit_json(*arguments(root, usd))


def held_out(root: Path) -> int:
    with Runtime.open(root, model=MODEL) as runtime:
        asked = runtime.ledger.query(event_type="EXCHANGE", contract_id=CONTRACT)
        mine = [one.metadata for one in asked if one.metadata["agent_id"] == "tester"]
        return sum(is_held_out(one["prompt"]) for one in mine)


def test_a_budget_that_ends_and_a_kill_and_going_on(answered: Path, provider: Scripted) -> None:
    wanted = held_out(answered)
    assert wanted > 4
    provider.bodies.clear()
    cut = run_remit(*arguments(answered, 0.000001))
    assert f"0 of {wanted}" in cut.stderr
    assert f"{wanted} of {wanted}" not in cut.stderr
    none = replayed(answered, 0.000001)
    assert (none["replayed"], none["ended"], provider.bodies) == (0, "budget", [])
    killed_at(3, provider, *arguments(answered, 1))
    done = replayed(answered, 1)
    assert (done["replayed"], done["ended"], done["failed"]) == (wanted, "complete", 0)
    assert (done["mean_before"], done["mean_after"]) == (0, 1)
    assert done["effect"]["value"] == 1
    assert len(provider.bodies) == wanted + 1  # the killed one alone was asked twice
    with Runtime.open(answered, model=MODEL) as runtime:
        lost = next(runtime.ledger.query(event_type="EXCHANGE_ORPHANED")).metadata["cost_usd"]
    assert done["spent_usd"] == pytest.approx(wanted * (100 * 0.15 + 10 * 0.6) / 1e6 + lost)
    again = replayed(answered, 1)
    assert len(provider.bodies) == wanted + 1
    assert again == done


def test_workers_replay_over_kills_within_its_budget(answered: Path, provider: Scripted) -> None:
    wanted = held_out(answered)
    one = (100 * 0.15 + 10 * 0.6) / 1e6

    def submitted(usd: float) -> str:
        return str(remit_json(*arguments(answered, usd), "--queue", "default")["order_id"])

    first = submitted(1)
    provider.bodies.clear()
    killed_at(3, provider, "worker", "--root", str(answered))
    verified = run_remit("ledger", "verify", "--root", answered)
    assert verified.returncode == 0, verified.stdout  # with a call of learning's account still out
    with Runtime.open(answered, model=MODEL) as runtime:
        orders = runtime.orders
        with working(runtime):
            status = run_blocking(orders.ended(first, 120))
            assert (status.state, status.attempts, len(provider.bodies)) == (
                "completed", 2, wanted + 1,
            )  # fmt: skip
            orphaned = next(runtime.ledger.query(event_type="EXCHANGE_ORPHANED"))
            lost = orphaned.metadata["cost_usd"]
            assert status.figures is not None
            assert status.figures["replayed"] == wanted
            assert status.figures["effect"]["value"] == 1
            assert status.figures["spent_usd"] == pytest.approx(wanted * one + lost)
            small = submitted(lost + one)  # reaches for two at most
            result = run_blocking(orders.ended(small, 120)).figures
            assert result is not None
            assert (result["ended"], result["spent_usd"] <= lost + one) == ("budget", True)
            wrong = Submission(agent_id="replay", kind="replay", task="{}")
            order_id = orders.submit(wrong, by="t")
            assert run_blocking(orders.ended(order_id, 60)).error_code == "InvalidInputError"
        stopped = submitted(1)
        provider.reply = lambda body: str(orders.cancel(stopped, by="Joe").order_id)
        asked = len(provider.bodies)
        with working(runtime):
            assert run_blocking(orders.ended(stopped, 60)).state == "cancelled"
        assert len(provider.bodies) == asked + 1
        report = runtime.ledger.verify()
        assert report.verified, report.problems
    assert not (answered / "replays").exists()  # another machine may have gone on


def test_a_model_that_changes_in_the_middle(answered: Path, provider: Scripted) -> None:
    becomes_another(provider, answer)
    done = run_remit(*arguments(answered, 1))
    assert done.returncode == 1, done.stdout
    assert "gpt-4o-mini-2 answers now" in done.stderr
    assert len(provider.bodies) == 3


def test_prices_that_change_after_the_budget_ended(answered: Path, provider: Scripted) -> None:
    with Runtime.open(answered, model=MODEL) as runtime:
        (entry, *_) = runtime.ledger.query(event_type="EXCHANGE", contract_id=CONTRACT)
        contract = runtime.contracts.load(CONTRACT)
        ask = ChangedRequests(runtime.ledger, InstalledFiles(answered), contract, {})
        bound = runtime.gateway.cost_bound(ask(entry), "openai", MODEL)
    assert bound is not None
    one = (100 * 0.15 + 10 * 0.6) / 1e6
    provider.bodies.clear()
    first = replayed(answered, bound / 1e9 + 2.5 * one)
    assert (first["ended"], first["replayed"]) == ("budget", len(provider.bodies))
    assert first["spent_usd"] == pytest.approx(first["replayed"] * one)
    (answered / "own.toml").write_text(
        f'version = 2026-12-01\n[models."{MODEL}"]\nprovider = "openai"\n'
        'date = 2026-12-01\ninput = "0.01"\noutput = "0.01"\n'
    )
    toml = (answered / "remit.toml").read_text()
    (answered / "remit.toml").write_text(f'{toml}\n[budget]\nprices = "own.toml"\n')
    asked = len(provider.bodies)
    done = run_remit(*arguments(answered, 1))
    assert (done.returncode, "prices changed" in done.stderr) == (1, True), done.stderr
    assert f"{first['kept']} elsewhere" in done.stderr
    assert len(provider.bodies) == asked


def test_a_proposal_and_another_model(answered: Path, provider: Scripted) -> None:
    with Runtime.open(answered, model=MODEL) as runtime:
        identity = Identity("otto", "operator", key_id="key-otto")
        learner = Learner(runtime.root, runtime.ledger, runtime.loaded, identity)
        (first, *_) = runtime.ledger.query(event_type="EXCHANGE", contract_id=CONTRACT)
        change = Change("prompt", contract_id=CONTRACT, additions=(RULE,))
        learner.propose(
            change,
            evidence=[first.id],
            predicted=gain(),
            replay={},
            reason="It is asked for.",
        )
    provider.bodies.clear()
    common = ["learn", "replay", "--contract", CONTRACT, "--usd", 1, "--root", answered, "--json",
              "--schema", answered.parent / "schema.json"]  # fmt: skip
    proposed = json.loads(run_remit(*common, "--proposal", "last").stdout)
    assert (proposed["mean_before"], proposed["mean_after"]) == (0, 1)
    other = json.loads(run_remit(*common, "--model", "gpt-4o").stdout)
    assert (other["mean_after"], provider.bodies[-1]["model"]) == (0, "gpt-4o")
    assert other["kept"] != proposed["kept"]
    again = [*common, "--proposal", "last"]
    ordered = json.loads(run_remit(*again, "--queue", "default").stdout)["order_id"]
    (file,) = (answered / "proposals").iterdir()
    file.write_bytes(file.read_bytes() + b"\0")
    changed = run_remit(*again)
    assert (changed.returncode, "was changed later" in changed.stderr) == (1, True), changed.stderr
    file.unlink()
    lost = run_remit(*again)
    assert (lost.returncode, "Propose the change again" in lost.stderr) == (1, True), lost.stderr
    with Runtime.open(answered, model=MODEL) as runtime, working(runtime):
        assert run_blocking(runtime.orders.ended(ordered, 60)).error_code == "ProposalError"


def test_the_question_or_the_model_within_one_budget(answered: Path, provider: Scripted) -> None:
    record(answered)
    wanted = held_out(answered)
    assert wanted > 12
    provider.bodies.clear()
    one = (100 * 0.15 + 10 * 0.6) / 1e6  # US dollars for a call of the model as recorded
    bar = f"{wanted} of {wanted}"
    both = [*arguments(answered, 1), "--model", "gpt-4o", "--attribute", "--json"]
    at = both.index("--usd") + 1

    def attributed(usd: float) -> dict[str, Any]:
        both[at] = str(usd)
        done = run_remit(*both)
        assert done.returncode == 0, done.stderr
        assert (bar in done.stderr) is (usd == 1)  # all were asked
        found: dict[str, Any] = json.loads(done.stdout)
        spent = sum(side["spent_usd"] for side in found["replays"].values())
        assert spent <= usd
        assert spent == pytest.approx(
            sum(
                one * (1 if body["model"] == MODEL else 2.5 / 0.15)
                for body in provider.bodies
            )
        )  # fmt: skip
        return found

    attributed(0)
    assert provider.bodies == []
    with Runtime.open(answered, model="gpt-4o") as runtime:
        (entry, *_) = runtime.ledger.query(event_type="EXCHANGE", contract_id=CONTRACT)
        contract, other = runtime.contracts.load(CONTRACT), ("openai", "gpt-4o")
        ask = ChangedRequests(runtime.ledger, InstalledFiles(answered), contract, {}, other)
        bound = runtime.gateway.cost_bound(ask(entry), *other)
    assert bound is not None
    first = attributed(bound / 1e9 + 12.5 * one * 2.5 / 0.15)
    held_out_sides = first["replays"]
    assert held_out_sides["model"]["ended"] == "budget"
    assert 0 < held_out_sides["model"]["replayed"] < wanted
    assert 0 <= held_out_sides["question"]["replayed"] - held_out_sides["model"]["replayed"] <= 10
    found = attributed(1)
    assert [side["replayed"] for side in found["replays"].values()] == [wanted, wanted]
    assert (found["cause"], len(found["exchanges"])) == ("question", wanted)
    assert (found["question"]["value"], found["model"]["value"]) == (1, 0)
    assert len(provider.bodies) == 2 * wanted  # nothing was paid twice
    attributed(1)
    report = json.loads(run_remit("learn", "report", "--json", "--root", answered).stdout)
    assert [(one["cause"], one["exchanges"]) for one in report["attributions"]] == [
        ("question", wanted)
    ]
    with Runtime.open(answered, model=MODEL) as runtime:
        seen = list(runtime.ledger.query(event_type="SIGNAL_OBSERVED"))
    assert len(seen) == 2  # of four runs the first asked nothing, the last found the same
    del both[both.index("--model") : both.index("--model") + 2]
    assert run_remit(*both).returncode == 2


def test_bad_input_asks_nothing(answered: Path, provider: Scripted) -> None:
    provider.bodies.clear()
    common = ("learn", "replay", "--contract", CONTRACT, "--usd", 1, "--root", answered)
    assert run_remit(*common).returncode == 2
    change = answered.parent / "other.json"
    for text, message in (
        ("{", "cannot be read"),
        ('{"kind": "prompt", "wrong": 1}', "change is not valid"),
        ('{"kind": "prompt"}', "cannot contain these fields"),
        ('{"kind": "boundary", "boundary": {"max_tokens": 9}}', "Answers cannot be graded"),
    ):
        change.write_text(text)
        done = run_remit(*common, "--change", change)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert provider.bodies == []


def test_a_boundary_is_proposed_only_if_the_replay_shows_that_it_helps(
    answered: Path, provider: Scripted
) -> None:
    wanted = held_out(answered)
    provider.reply = lambda body: '{"tea": 1}' if body.get("max_tokens", 0) > 900 else "no"
    common = ["--usd", 1, "--schema", answered.parent / "schema.json", "--json", "--root", answered,
              "--reason", "Answers are cut."]  # fmt: skip

    def said(*limit: object) -> str:
        done = run_remit("learn", "boundary", CONTRACT, *common, *limit)
        assert done.returncode, done.stdout
        return done.stderr

    asked = len(provider.bodies)
    few = said("--max-tokens", 1000)
    assert f"has 30 exchanges that can be graded, of which {wanted} are held out" in few
    assert "needs 200" in few
    assert f"record about {(200 - wanted) * 10 // 3 + 1} more" in few
    with Runtime.open(answered, model=MODEL) as runtime:
        first = next(iter(runtime.ledger.query(event_type="EXCHANGE", contract_id=CONTRACT)))
        for number in range(700):
            prompt = [{"role": "user", "content": f"Recorded case {number}?"}]
            entry = dataclasses.replace(first, metadata={**first.metadata, "prompt": prompt})
            runtime.ledger.write(entry)
    assert "Give a limit" in said()
    assert "Give a larger budget" in said("--max-tokens", 950, "--usd", 0.0000001)
    assert len(provider.bodies) == asked
    assert "may be zero" in said("--max-tokens", 800)  # all answers are as bad as before
    done = run_remit("learn", "boundary", CONTRACT, *common, "--max-tokens", 1000)
    assert done.returncode == 0, done.stderr
    proposal = json.loads(done.stdout)
    assert (proposal["kind"], proposal["state"]) == ("boundary", "open")
    assert proposal["replay"]["replayed"] >= 200
    assert proposal["predicted"]["value"] == 1.0


# -- A budget that is no number would hold against nothing -------------------------------------


@pytest.mark.parametrize("usd", ["nan", "inf", "-inf", "-1", "1e400"])
def test_over_the_command_line(answered: Path, provider: Scripted, usd: str) -> None:
    provider.bodies.clear()
    at = ("--root", answered)
    for command in (
        ("learn", "prompt", CONTRACT, "--usd", usd, *at),
        ("learn", "replay", "--contract", CONTRACT, "--model", "gpt-4o", "--usd", usd, *at),
        ("learn", "judge", "--contract", CONTRACT, "--usd", usd, *at),
        ("learn", "judge", "--width", usd, *at),
        ("route", "calibrate", "--usd", usd, *at),
        ("route", "fit", "--usd-per-call", usd, *at),
        ("route", "fit", "--usd-per-call", 1, "--quality-floor", usd, *at),
    ):
        done = run_remit(*command)
        assert (done.returncode, "the range" in done.stderr) == (2, True), (command, done.stderr)
    assert provider.bodies == []


@pytest.mark.parametrize("usd", [float("nan"), float("inf"), -1.0])
def test_in_python(usd: float) -> None:
    with pytest.raises(InvalidInputError, match="not a budget"):
        run_blocking(
            calibrate(
                None, None, [], [], lambda *_: 0.0,  # type: ignore[arg-type]
                usd=usd, prices=PriceTable.shipped(), by="test",
            )
        )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff\xfe{}", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"a": ' * 100_000, "cannot be read"),
        (b'{"LED-1": "\\ud800"}', "cannot be read"),
        (b"[]", "does not contain an object"),
        (b"{}", "contains no reference answers"),
        (b'{"LED-1": "a", "LED-1": "b"}', "twice"),
        (b'{"LED-1": true}', "is neither text nor a number"),
        (b'{"LED-1": " . "}', "is neither text nor a number"),
        (bytes(17 << 20), "longer than 16 MiB"),
    ],
    ids=range(10),
)
def test_a_bad_file_of_right_answers_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "right.json").write_bytes(data)
    with pytest.raises(InvalidInputError, match=said):
        read_references(tmp_path / "right.json")


def test_right_answers_of_an_unknown_exchange_change_nothing(
    answered: Path, provider: Scripted
) -> None:
    provider.bodies.clear()
    references = answered.parent / "right.json"
    references.write_text('{"LED-7fffffff": "42"}')
    done = run_remit(*arguments(answered, 1), "--references", references)
    assert (done.returncode, "The ledger has no exchange" in done.stderr) == (2, True), done.stderr
    assert provider.bodies == []
