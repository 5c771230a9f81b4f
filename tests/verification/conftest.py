"""Results of interrupted checks are kept in a folder of the tests, not in that of the person who runs them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def state_home(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder
