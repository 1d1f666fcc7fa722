"""What every policy of a configuration may carry beside its own settings: `mode` and `when`. And what becomes of a policy with them.

    under(Access(models=("fast",)), kind="access", when="team == 'search'", mode="shadow")

A policy without either is what it was: no layer is added but the one that signs its notes, where `rule` says with what.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Annotated, Literal, cast

from msgspec.structs import replace
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from ..call.call import Call
from ..call.chain import Next, Policy
from ..call.events import Event
from .conditions import LONGEST, Condition, ConditionFailed, ConditionMistakes
from .content import after_look, unseen
from .shadow import Shadow

Mode = Literal["enforce", "shadow"]

MISTAKE = "condition"
"""The type of pydantic's error for a condition that can't be used; its context holds `mistakes`, as conditions.py has them."""

SHOWN = 200
"""Characters of a condition that notes tell."""

GUARDS = 30
"""Up to this stage stand the rules that refuse or redact: one whose condition fails holds. A later one doesn't."""


def _checked(text: str) -> str:
    try:
        Condition.of(text)
    except ConditionMistakes as error:
        raise PydanticCustomError(MISTAKE, "can't be used", {"mistakes": error.mistakes}) from None
    return text


When = Annotated[
    str,
    StringConstraints(max_length=LONGEST),
    AfterValidator(_checked),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": LONGEST, "examples": ["team == 'search' && input_tokens > 10000"]}),
]


class Terms(BaseModel):
    """What every policy may carry."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    mode: Mode = "enforce"
    """`shadow`: it decides and records, and enforces nothing."""
    when: When | None = None
    """For which calls it holds: CEL over `model team key user tags op stream tools input_tokens bytes images`. All by default. Where it
    fails (a tag that a call doesn't have), a rule that refuses or redacts holds, and any other doesn't."""

    @property
    def none(self) -> bool:
        """The policy holds for every call, in earnest."""
        return self.when is None and self.mode == "enforce"


def terms_of(settings: object) -> Terms:
    """What the settings of a policy say of it."""
    return Terms.model_construct(mode=getattr(settings, "mode", "enforce"), when=getattr(settings, "when", None))


def holds(settings: object, call: Call) -> bool:
    """Whether a policy holds for a call, in earnest, as far as that is known without a long look. Nothing is noted."""
    terms = terms_of(settings)
    if terms.mode == "shadow" or terms.when is None:
        return terms.mode != "shadow"
    condition = Condition.of(terms.when)
    try:
        return not (condition.looks and unseen(call)) and condition(call)
    except ConditionFailed:
        return getattr(settings, "stage", 50) <= GUARDS


def under(policy: Policy, *, kind: str, mode: Mode = "enforce", when: str | None = None, rule: str = "") -> Policy:
    """The policy under these terms. `kind`: what notes call it. `rule`: where it stands in the configuration, which its notes say.

    Raises:
        ConditionMistakes: `when` can't be used.
    """
    held = cast("Policy", Shadow(kind, policy)) if mode == "shadow" else policy
    held = Conditional(Applies(kind, when, getattr(policy, "stage", 50), mode=mode), held) if when is not None else held
    return Signed(held, rule, when) if rule else held


class Signed:
    """A policy whose notes say where it stands in the configuration, and its condition."""

    __slots__ = ("_policy", "_rule", "needs", "stage")

    def __init__(self, policy: Policy, rule: str, when: str | None) -> None:
        self._policy = policy
        self._rule = {"rule": rule} | ({"condition": when[:SHOWN]} if when is not None else {})
        self.stage: int = getattr(policy, "stage", 50)
        self.needs: Iterable[str] = getattr(policy, "needs", ())

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        return self._policy(replace(call, rule=self._rule), lambda inside: next(replace(inside, rule=call.rule)))


class Applies:
    """Whether a rule's condition holds of a call; of one that fails it says so in a note. For rules that make no layer of their own: where
    it `looks`, they do `await look_at(call)` first. `rule`: what the note calls the rule."""

    __slots__ = ("_condition", "_doubtful", "_kind", "_mode", "looks", "rule")

    def __init__(self, kind: str, when: str | None, stage: int, *, mode: Mode = "enforce") -> None:
        self.rule = ""
        self._mode = {"mode": mode} if mode == "shadow" else {}
        self._kind = kind
        self._condition = Condition.of(when) if when is not None else None
        self._doubtful = stage <= GUARDS
        self.looks = self._condition is not None and self._condition.looks

    def __call__(self, call: Call) -> bool:
        if self._condition is None:
            return True
        try:
            return self._condition(call)
        except ConditionFailed as error:
            named = ({"rule": self.rule} if self.rule else {}) | self._mode
            call.notes.add(f"{self._kind}.condition_failed", **named, verdict="warn", error=error.kind, holds=self._doubtful)
            return self._doubtful


class Conditional:
    """A policy that holds for some calls; any other goes past it."""

    __slots__ = ("_applies", "_policy", "needs", "stage")

    def __init__(self, applies: Applies, policy: Policy) -> None:
        self._applies = applies
        self._policy = policy
        self.stage: int = getattr(policy, "stage", 50)
        self.needs: Iterable[str] = getattr(policy, "needs", ())

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        if self._applies.looks and unseen(call):
            return after_look(call, self, next)
        if self._applies(call):
            return self._policy(call, next)
        return next(call)
