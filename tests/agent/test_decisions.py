"""agent/decisions.py: a plan only gets stricter."""

from __future__ import annotations

from spangate.agent import BatchPlan, PermissionDecision, ToolCallBlock, ToolResultState

CALLS = [ToolCallBlock(name, "f") for name in "abc"]


def verdicts(plan: BatchPlan) -> list[str]:
    return [each.verdict for each in plan]


def test_calls_are_run_answered_or_asked_about() -> None:
    plan = BatchPlan.running(CALLS)
    assert verdicts(plan) == ["run", "run", "run"]
    changed = plan.answer("a", "No.", ToolResultState.DENIED).ask("b", "May I?").ask("a")
    assert verdicts(changed) == ["answer", "ask", "run"]
    assert verdicts(plan) == ["run", "run", "run"], "a change is a new value"
    result = changed.calls[0].result
    assert result is not None
    assert (result.id, result.text, result.state) == ("a", "No.", "denied")


def test_of_two_plans_the_stricter_stands_call_by_call() -> None:
    inner = BatchPlan.running(CALLS).answer("a", "No.").ask("b").ending("enough")
    outer = BatchPlan.running(CALLS[:2]).answer("b", "No.")
    both = outer.at_least(inner)
    assert verdicts(both) == ["answer", "answer", "run"]
    assert [each.call.id for each in both] == ["a", "b", "c"], "a call that a layer forgot is still there"
    assert both.end == "enough"


def test_permissions() -> None:
    made = [PermissionDecision.allow(), PermissionDecision.deny("no"), PermissionDecision.ask("may I")]
    assert [(each.behavior.value, each.message) for each in made] == [("allow", ""), ("deny", "no"), ("ask", "may I")]
