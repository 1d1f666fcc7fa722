"""What is told of a check, to people and to programs."""

from __future__ import annotations

import json

from spangate.proxy.commands.doctor_findings import as_json, of_mistake, off, ok, problem, shown, warning
from spangate.proxy.mistakes import Mistake


def test_how_to_mend_it_follows_what_is_wrong() -> None:
    assert problem("port", "8484 is taken", "choose another").words == "8484 is taken: choose another"
    assert ok("port", "8484 is free").words == "8484 is free"


def test_a_mistake_of_the_file_is_told_as_check_tells_it() -> None:
    told = Mistake("spangate.yaml", 3, 9, "teams.search", "has no key", "warning")
    assert of_mistake(told) == warning("configuration", "spangate.yaml:3:9: teams.search: has no key")
    assert of_mistake(Mistake("other.yaml", 0, 0, "", "there is no such file")).words == "other.yaml: there is no such file"


def test_programs_learn_whether_all_is_well() -> None:
    well = json.loads(as_json([ok("a", "b"), off("c", "d", "e"), warning("f", "g")]))
    assert well["ok"] is True
    assert well["checks"][1] == {"check": "c", "level": "off", "told": "d", "mend": "e"}
    assert json.loads(as_json([ok("a", "b"), problem("c", "d")]))["ok"] is False


def test_no_secret_is_told_and_no_control_character() -> None:
    [told] = shown([problem("x", "it said \x1b[2J sk-0123456789abcdef", "unset hunter2hunter2")], {"PASSWORD": "hunter2hunter2"})
    assert told == problem("x", "it said ?[2J sk-…", "unset ${PASSWORD}")
