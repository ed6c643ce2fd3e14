"""``python -m tools.route_evaluation``, and that its page shows what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from remit.kernel.errors import RemitError
from remit.routing import WeightsError
from remit.routing.weights import Weights
from tools.route_evaluation import EvaluationError
from tools.route_evaluation.__main__ import command

_PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"
_SET = (
    '{"id": "1", "task": "a", "prompt": "x", "results": '
    '{"m": {"quality": 1, "cost_usd": 2}, "n": {"quality": 0, "cost_usd": 1}}}\n'
    '{"id": "2", "task": "b", "prompt": "y", "results": '
    '{"m": {"quality": 0, "cost_usd": 2}, "n": {"quality": 0, "cost_usd": 1}}}\n'
)


@pytest.fixture(autouse=True)
def _no_root_is_near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REMIT_ROOT", raising=False)


def _run(*arguments: str, given: bytes | None = None) -> Result:
    return CliRunner().invoke(command, list(arguments), input=given)


def _ok(*arguments: str, given: bytes | None = None) -> str:
    found = _run(*arguments, given=given)
    assert found.exit_code == 0, found.exception
    return found.stdout


@pytest.fixture
def small_set(tmp_path: Path) -> Path:
    path = tmp_path / "set.jsonl"
    path.write_text(_SET, "utf-8")
    return path


def _stated(model: str, general: int, dollars: int) -> str:
    return (
        f"[routing.models.{model}]\nprovider = 'p'\nabilities = {{ general = {general} }}\n"
        f"input_usd_per_million = {dollars}.0\noutput_usd_per_million = {dollars}.0\n"
    )


def _example(after: str) -> str:
    """The output that the page shows under a command."""
    text = _PAGE.read_text("utf-8")
    return text.split(f"$ {after}\n", 1)[1].split("```", 1)[0]


def test_the_page_shows_what_is_printed() -> None:
    # When the rules or the set changed on purpose, the output goes into the page again, and the
    # page's sentences about it are read again. A line "…" of the page stands for lines left out.
    parts = _example("python -m tools.route_evaluation").split("…\n")
    assert re.fullmatch("(?:.*\n)*?".join(map(re.escape, parts)), _ok())


def test_the_page_describes_the_form_of_a_set(tmp_path: Path) -> None:
    row = _PAGE.read_text("utf-8").split("```json\n", 1)[1].split("```", 1)[0]
    path = tmp_path / "page.jsonl"
    path.write_text(json.dumps(json.loads(row)) + "\n", "utf-8")
    stated = _PAGE.read_text("utf-8").split("```toml\n", 1)[1].split("```", 1)[0]
    candidates = tmp_path / "page.toml"
    candidates.write_text(stated, "utf-8")
    assert _ok(str(path), "--candidates", str(candidates)).startswith("1 prompt: 1 ")


def test_json_and_the_rules_in_force(small_set: Path) -> None:
    found = json.loads(_ok("--json"))
    assert found["rule_version_hash"] == Weights.shipped().rule_version_hash
    assert found["policies"][0]["name"] == "scoring"
    assert found["best_single"] in found["policies"][0]["shares"]
    assert json.loads(_ok("--json", str(small_set)))["set"] == str(small_set)


def test_what_routers_are_compared_by(small_set: Path, tmp_path: Path) -> None:
    candidates = tmp_path / "c.toml"
    candidates.write_text(_stated("m", 90, 9) + _stated("n", 10, 1), "utf-8")
    arguments = [str(small_set), "--candidates", str(candidates)]
    missing = "Robustness to paraphrase is missing"
    assert missing in _ok(*arguments)
    first = json.loads(_SET.splitlines()[0]) | {"paraphrases": ["the same"]}
    small_set.write_text(json.dumps(first) + "\n", "utf-8")
    assert missing not in _ok(*arguments)
    found = json.loads(_ok(*arguments, "--json"))
    policy = found["policies"][0]
    assert (policy["robustness"], policy["models_chosen"]) == (1, 1)
    assert policy["arena_score"] is None  # 2,000 dollars for 1,000 prompts
    assert found["frontiers"][0]["aiq"] == 0.5
    assert found["frontiers"][0]["kept_usd"] == pytest.approx(1.98)
    small_set.write_text(json.dumps(first | {"paraphrases": "the same"}) + "\n", "utf-8")
    with pytest.raises(EvaluationError, match="line 1: paraphrases is no list of texts"):
        raise _run(*arguments).exception or AssertionError


def test_a_set_of_ones_own(small_set: Path) -> None:
    found = _run(str(small_set))
    assert "2 prompts: 1 a, 1 b." in found.stdout
    assert "scoring" not in found.stdout
    assert "Nothing is stated of these models" in found.stderr
    assert "1 prompt: 1 b." in _ok(str(small_set), "--task", "b")
    assert _ok("-", given=_SET.encode()) == found.stdout


def test_models_and_rules_of_a_root(small_set: Path, tmp_path: Path) -> None:
    root = tmp_path / ".remit"
    rules = root / "HOT" / "routing" / "weights.json"
    rules.parent.mkdir(parents=True)
    document = dict(Weights.shipped().document)
    rules.write_text(json.dumps({**document, "description": "mine"}), "utf-8")
    (root / "remit.toml").write_text(_stated("m", 90, 9) + _stated("other", 9, 9), "utf-8")
    found = _run(str(small_set), "--json", "--root", str(root))
    printed = json.loads(found.stdout)
    assert printed["rule_version_hash"] == Weights.from_file(rules).rule_version_hash
    assert [one["name"] for one in printed["models"]] == ["m"]
    assert _run(str(small_set), "--root", str(root)).stderr == (
        "Left out, for nothing is stated of them: n.\n"
    )


def test_candidates_and_weights_of_ones_own(small_set: Path, tmp_path: Path) -> None:
    candidates = tmp_path / "c.toml"
    candidates.write_text(_stated("m", 90, 9) + _stated("n", 10, 1), "utf-8")
    arguments = [str(small_set), "--json", "--candidates", str(candidates)]
    rules = tmp_path / "weights.json"
    document = dict(Weights.shipped().document)
    for feature, winner in (("ability", "m"), ("cost", "n")):
        weights = {**dict.fromkeys(document["features"], 0), feature: 1}
        rules.write_text(json.dumps({**document, "features": weights}), "utf-8")
        found = json.loads(_ok(*arguments, "--weights", str(rules)))
        assert found["policies"][0]["shares"][winner] == 1


def test_routerbench_as_csv(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("sample_id,prompt,eval_name,m,m|total_cost\nq,p,e,1.0,0.5\n", "utf-8")
    assert "1 prompt: 1 e." in _ok(str(table), "--format", "routerbench-csv")


def test_what_goes_wrong_is_said(small_set: Path, tmp_path: Path) -> None:
    candidates = tmp_path / "c.toml"
    candidates.write_text(_stated("huge", 90, 9), "utf-8")
    wrong = {
        (str(tmp_path / "none"),): "cannot be read",
        (str(small_set), "--task", "c"): "no rows",
        (str(small_set), "--format", "routerbench-csv"): "no column 'sample_id'",
        (str(small_set), "--candidates", str(candidates)): "line 1 has no result of .*huge",
    }
    for arguments, message in wrong.items():
        error = _run(*arguments).exception
        assert isinstance(error, RemitError)
        with pytest.raises(EvaluationError, match=message):
            raise error
    assert isinstance(_run("--weights", str(tmp_path / "none")).exception, WeightsError)
    assert _run("--format", "xml").exit_code == 2
