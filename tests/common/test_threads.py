"""How many threads a network gets."""

import os

import pytest

from fada.common.threads import SMALL, cores, free_cores, threads_for


@pytest.mark.parametrize(("load", "expected"), [(0.0, 4), (1.2, 3), (2.6, 1), (30.0, 1)])
def test_what_others_use_is_left_to_them(monkeypatch: pytest.MonkeyPatch, load: float, expected: int) -> None:
    monkeypatch.setattr("fada.common.threads.cores", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert free_cores() == expected
    assert threads_for(SMALL) == expected
    assert threads_for(SMALL - 1) == 1


def test_there_is_a_core() -> None:
    assert 1 <= free_cores() <= cores()
