"""A change of prices that is killed at one step after another: on record and made, or neither."""

from __future__ import annotations

import functools
import itertools
import shutil
import signal
from pathlib import Path

import pytest

from remit import Runtime
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerClient, open_root_ledger
from remit.packages import RecordedPrices, recorded_prices
from remit.providers.prices import Overlay, Usage
from remit.runtime.installation import recover_packages
from remit.runtime.prices import (
    RootPrices,
    change_own_prices,
    prices_of,
    recorded_prices_of,
)
from tests.packages.install.killing import Clock, forked
from tests.support.commands import run_remit
from tests.support.roots import new_root

MILLION = Usage(1_000_000, 0)


def _opened(root: Path) -> LedgerClient:
    place = Root(root)
    return open_root_ledger(place, load_settings(place.config).settings.ledger)


def _set_to(root: Path, usd: str, last: int | None = None) -> None:
    """Set the price of gpt-4o, or take it back where ``usd`` is empty; be killed at a step."""

    def change(found: RootPrices) -> Overlay:
        if not usd:
            return Overlay({})
        table = 'version = 2026-12-01\n[models."gpt-4o"]\nprovider = "openai"\ndate = 2026-12-01\n'
        data = f'{table}input = "{usd}"\noutput = "{usd}"\n'
        return Overlay.read(data.encode(), "test", found.base)

    with _opened(root) as ledger, Clock(last).wound():
        change_own_prices(Root(root), ledger, "", change, wait_s=5, by="test")


def _recorded(root: Path) -> RecordedPrices:
    with _opened(root) as ledger:
        return recorded_prices(ledger)


def _charged(found: RootPrices) -> float:
    """What a million tokens cost."""
    price = found.table.find("openai", "gpt-4o")
    assert price is not None
    return price.cost_nano(MILLION) / 1e9


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one price of the operator's own."""
    root = new_root(tmp_path_factory.mktemp("priced") / "root")
    _set_to(root, "2")
    return root


@pytest.mark.parametrize(("usd", "charged"), [("3", 3.0), ("", 2.5)])
def test_killed_anywhere_it_is_finished_or_undone(
    priced: Path, tmp_path: Path, usd: str, charged: float
) -> None:
    before, running = _recorded(priced), prices_of(Root(priced), "")
    seen = []
    for last in itertools.count():
        root = tmp_path / str(last)
        shutil.copytree(priced, root)
        status = forked(functools.partial(_set_to, root, usd, last))
        if status == 0:
            break
        assert status == -signal.SIGKILL
        place = Root(root)
        with _opened(root) as ledger:
            recorded = recorded_prices(ledger)
            # A server that runs takes up exactly what came to be on record.
            assert running.behind(place, ledger) == (recorded != before)
            recover_packages(place, ledger, load_settings(place.config))
            found = recorded_prices_of(place, ledger, "", wait_s=1)
        assert found.file.matches(recorded), last
        assert _charged(found) == (2.0 if recorded == before else charged), last
        assert not (root / ".prices.toml.new").exists()
        seen.append(recorded != before)
    assert seen == sorted(seen)
    assert seen.count(False) >= 3
    assert seen.count(True) >= 2


def test_what_was_cut_off_is_said_and_never_charged_by(priced: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for last in itertools.count():  # until the change is on record, and the file is as it was
        shutil.copytree(priced, root)
        assert forked(functools.partial(_set_to, root, "3", last)) == -signal.SIGKILL
        if (recorded := _recorded(root)) != _recorded(priced):
            break
        shutil.rmtree(root)
    lost = tmp_path / "lost"
    shutil.copytree(root, lost)
    advice = run_remit("doctor", "--root", root).stdout
    assert f"was interrupted; the last recorded version is {recorded.entry_id}" in advice
    listed = run_remit("price", "list", "--own", "--root", root)
    assert f"recorded as {recorded.entry_id} was interrupted" in listed.stderr
    assert " 3 " in listed.stdout
    assert "interrupted" not in run_remit("price", "list", "--root", root).stderr
    # Where the new file is lost as well, no call is charged by the old one.
    (lost / ".prices.toml.new").unlink()
    with pytest.raises(
        RemitError, match=f"differ from the prices recorded in {recorded.entry_id}"
    ) as refused:
        Runtime.open(lost)
    assert "remit price import prices.toml" in refused.value.next_step
    assert run_remit("price", "import", lost / "prices.toml", "--root", lost).returncode == 0
    with Runtime.open(lost) as runtime:
        assert _charged(runtime.root_prices) == 2.0
