"""A bootstrap of this tree's Remit, made once."""

from __future__ import annotations

import pytest

from remit.packages.bootstrap import Bundle, build_bundle
from remit.packages.distribution import Distribution, repack_wheel
from tests.packages.bootstrap.making import packages
from tests.packages.distribution.placing import copy_project, editable
from tests.packages.making import LIMITS


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    top = tmp_path_factory.mktemp("installed")
    return editable(top / "site", copy_project(top / "project"))


@pytest.fixture(scope="session")
def bundle(installed: Distribution) -> Bundle:
    return build_bundle(repack_wheel(installed), packages(), LIMITS)
