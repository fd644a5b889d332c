from __future__ import annotations

import pytest

from tests.net.transport.pki import Pki


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    if reason := Pki.missing():
        pytest.skip(reason)
    return Pki(tmp_path_factory.mktemp("pki"))
