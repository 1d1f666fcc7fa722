"""call/parts.py: which call a part belongs to. What it makes of providers' own ways: tests/proxy/test_convert.py, tests/agent/models."""

from __future__ import annotations

import pytest

from spangate.call.parts import CallParts


class Calls:
    """Each call is the list of the words of its parts."""

    def __init__(self) -> None:
        self.begun: list[tuple[str | None, list[str]]] = []
        self.parts: CallParts[list[str]] = CallParts()

    def add(self, words: str, *, id: object = None, index: object = None, names: bool = False) -> None:
        self.parts.of({"id": id, "index": index}, self.begin, names=names).append(words)

    def begin(self, own: str | None) -> list[str]:
        self.begun.append((own, []))
        return self.begun[-1][1]


def test_a_new_id_begins_a_call_and_an_index_goes_on_with_its_latest() -> None:
    calls = Calls()
    calls.add("a1", id="A", index=0, names=True)
    calls.add("b1", id="B", index=0, names=True)
    calls.add("b2", index=0)
    calls.add("a2", id="A", index=0)
    assert calls.begun == [("A", ["a1", "a2"]), ("B", ["b1", "b2"])]


def test_an_index_that_nobody_knows_goes_on_with_the_latest_unless_it_names_a_tool() -> None:
    calls = Calls()
    calls.add("a1", id="A", index=0, names=True)
    calls.add("a2", index=1)
    calls.add("b1", index=2, names=True)
    calls.add("b2", index=3)
    calls.add("a3", index=1)
    assert calls.begun == [("A", ["a1", "a2", "a3"]), (None, ["b1", "b2"])]


def test_an_id_that_comes_again_elsewhere_with_a_name_is_another_calls() -> None:
    calls = Calls()
    calls.add("a", id="A", index=0, names=True)
    calls.add("a", id="A", index=0, names=True)
    calls.add("b", id="A", index=1, names=True)
    calls.add("b", id="A", index=1)
    calls.add("b", id="A", names=True)
    assert calls.begun == [("A", ["a", "a"]), ("A", ["b", "b", "b"])]


def test_a_call_that_was_begun_elsewhere_goes_on() -> None:
    calls, known = Calls(), ["k1"]
    calls.parts.goes_on(known, "K", 3)
    calls.add("k2", index=3)
    calls.add("k3", id="K")
    calls.add("k4", index=9)
    assert (known, calls.begun) == (["k1", "k2", "k3", "k4"], [])


@pytest.mark.parametrize("odd", [[], {}, 1.5, True, ""])
def test_what_is_no_id_and_no_index_is_none(odd: object) -> None:
    calls = Calls()
    calls.add("a", id=odd, index="x", names=True)
    calls.add("b", id=odd)
    assert calls.begun == [(None, ["a", "b"])]
