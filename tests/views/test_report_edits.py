"""A report that was edited: the page says so, or shows what it showed before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.tlog import SignedCheckpoint, Signer
from remit.views import audit_report, report_parts
from tests.ledger.segments.writing import cut_off, sessions
from tests.support.browser import Browser, needs_browser
from tests.support.soak import SEED, is_soak, sample
from tests.views.report_edits import Edit, edits_of, whole_range_of
from tests.views.story import tell_auditor
from tests.views.test_report import HOSTILE, NOON, written

pytestmark = [pytest.mark.soak, needs_browser]

# All that a reader can come to see: each list open, each page of it, and each record.
_PAGE = """(async () => {
    const banner = document.getElementById("banner");
    if (!banner) return ["no banner", ""];
    if (!banner.dataset.state) return ["not run", banner.innerText];
    if (banner.dataset.state === "wait") return null;
    if (banner.dataset.state === "bad") return ["bad", banner.innerText];
    for (const one of document.querySelectorAll("details")) one.open = true;
    await new Promise((done) => setTimeout(done, 30));
    document.querySelectorAll(".entry button").forEach((one) => one.click());
    const extra = [...document.childNodes].filter((one) => one.nodeType === 1).length;
    const whole = document.documentElement.outerHTML;
    const entries = [...document.querySelectorAll("main > :not(#stated) .entry")];
    const ids = entries.map((one) => one.outerHTML);
    const range = document.querySelector(".about").innerText;
    const claim = document.querySelector(".range").innerText;
    const isPart = claim.startsWith("Not complete: a selection.");
    document.getElementById("stated").remove();
    const rest = document.documentElement.outerHTML;
    return ["good", whole, document.title, extra, rest, ids, range, isPart];
})()"""


class Reader:
    """A browser that opens reports."""

    def __init__(self, browser: Browser, place: Path) -> None:
        self._browser = browser
        self._file = place / "report.html"

    def read(self, text: str) -> list[Any]:
        """Return the state of the page in the end, and all that it can show."""
        self._file.write_text(text, "utf-8")
        self._browser.open(self._file.as_uri())
        found: list[Any] = self._browser.until(_PAGE)
        return found

    def run(self, expression: str) -> Any:
        """Return the value of an expression in the page that was read last."""
        return self._browser.run(expression)


@pytest.fixture(scope="module")
def reader(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(browser, tmp_path_factory.mktemp("report"))


def _file(client: LedgerClient, **more: Any) -> str:
    checkpoint = SignedCheckpoint.parse(client.checkpoint())
    report = audit_report(client, **{"checkpoint": checkpoint, **more})
    return "".join(report_parts(client, report))


def _tell(place: Path, said: str, *, calls: int) -> LedgerClient:
    client = LedgerClient(place, signer=Signer.generate("example.com/log"))
    with written(timedelta()):
        tell_auditor(client, said=said)
    with written(timedelta(minutes=30)):
        ids = tell_auditor(client, calls=calls)
        client.erase(ids["call"], reason="asked for", requested_by="dpo")
    with written(timedelta(minutes=60)):
        tell_auditor(client)
    return client


_BASES = ("everything", "a range", "no entry", "a selection", "archived")
_CHOSEN = _BASES if is_soak() else (_BASES[SEED % len(_BASES)],)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One report of each chosen kind, and one of another ledger."""
    place = tmp_path_factory.mktemp("ledgers")
    made: dict[str, str] = {}
    limits = {"since": NOON + timedelta(minutes=30), "until": NOON + timedelta(minutes=45)}
    with _tell(place / "one.db", HOSTILE, calls=3) as client:
        made["everything"] = _file(client)
        made["a range"] = _file(client, **limits, verification=client.verify())
        made["no entry"] = _file(client, since=NOON + timedelta(days=1))
        if "a selection" in _CHOSEN:
            note = LedgerEntry("NOTE", "SUB-1", "KEPT", "a note")
            for _ in range(whole_range_of(made["everything"]) // 2_000 + 1):
                client.write_many([note] * 2_000)
            made["a selection"] = _file(client, most=2)
    if "archived" in _CHOSEN:
        with LedgerClient(place / "three.db", signer=Signer.generate("example.com/log")) as client:
            sessions(client, 40, leading=0)
            with written(timedelta()):
                tell_auditor(client)
            cut_off(client, place / "archive")
            made["archived"] = _file(client)
    with _tell(place / "two.db", "because", calls=4) as client:
        made["of another ledger"] = _file(client)
    return made


_FEWEST = 1_000  # each report has more edits than this
_SAMPLED = 10


def _edits(reports: dict[str, str], base: str) -> Iterator[Edit]:
    for edit in edits_of(reports[base], reports["of another ledger"]):
        # Edits of the markup do not depend on the data: one report is enough for them.
        if base == "everything" or not is_soak() or not edit.kind.startswith(("markup", "attr")):
            yield edit


def test_no_edit_shows_other_content_as_verified(
    reader: Reader, reports: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    controls = {base: reader.read(reports[base]) for base in _CHOSEN}
    assert {found[0] for found in controls.values()} == {"good"}
    counts: dict[str, Counter[str]] = {}
    wrong = []
    chosen = set(sample(range(_FEWEST), _SAMPLED))
    for base, (number, edit) in (
        (one, each) for one in _CHOSEN for each in enumerate(_edits(reports, one))
    ):
        if number not in chosen and not is_soak():
            continue
        if edit.text == reports[base]:
            continue  # such as another order of one record
        found = reader.read(edit.text)
        if found == controls[base]:
            outcome = "no effect"
        elif found[0] == "bad" and found[1].startswith("NOT VERIFIED."):
            outcome = "detected"
        elif edit.stops and found[0] in ("not run", "no banner") and not _claims(found[1]):
            outcome = "script not run"
        elif _is_declared(base, edit, found, controls[base]):
            outcome = "declared"
        else:
            outcome = "UNDETECTED"
            wrong.append((base, edit.kind, edit.name, found[0], found[1][:300]))
        counts.setdefault(edit.kind, Counter())[outcome] += 1
    if is_soak():
        with capfd.disabled():
            _print(counts)
    assert wrong == []


def _claims(banner: str) -> bool:
    return banner.startswith("Verified")


def _is_declared(base: str, edit: Edit, found: list[Any], control: list[Any]) -> bool:
    """Return True if an edit that leaves a true report shows no more than that.

    The page may differ in the section of statements; in its range, if it names that; and by
    entries left out, if it says that it is a selection.
    """
    if not edit.is_true or found[0] != "good":
        return False
    _, _, _, _, rest, entries, range_, is_part = found
    if rest == control[4]:
        return True
    is_less = set(entries) <= set(control[5])
    return is_less and (range_ != control[6] or (base == "a selection" and is_part))


def _print(counts: dict[str, Counter[str]]) -> None:
    outcomes = ("detected", "no effect", "script not run", "declared", "UNDETECTED")
    print(f"\n{'kind':44}{'tried':>7}" + "".join(f"{one:>16}" for one in outcomes))
    for kind, found in sorted(counts.items()):
        print(f"{kind:44}{found.total():7}" + "".join(f"{found[one]:16}" for one in outcomes))
    total = sum(counts.values(), Counter())
    print(f"{'all':44}{total.total():7}" + "".join(f"{total[one]:16}" for one in outcomes))
