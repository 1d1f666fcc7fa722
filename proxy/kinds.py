"""Which kinds of providers and policies there are, and the class of spangate.yaml that follows from them.

Our own parts come through the same entry points as anybody's: `spangate.providers` and `spangate.policies`, name = settings class.
`OURS` is for a checkout that was never installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from types import GenericAlias
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, Discriminator, Field, Tag, create_model

from ..policies.terms import Terms
from .mistakes import ConfigMistakes, Mistake
from .settings import Defaults, Model, PolicyRule, Settings, Team

PolicyKinds = Mapping[str, type[BaseModel]]
ProviderKinds = Mapping[str, type[BaseModel]]

OURS = {
    "spangate.policies": {
        "access": "..policies.access:Access",
        "budget": "..policies.budget:Budget",
        "rate_limit": "..policies.rate_limit:RateLimit",
        "time_limit": "..policies.time_limit:TimeLimit",
    },
    "spangate.providers": {"openai": ".providers.openai:OpenAI", "scripted": ".providers.scripted:Scripted"},
}
# Set under models.NAME instead of in a team's list: they concern how a model is reached, not who calls.
MODEL_PARTS = frozenset({"time_limit"})


@dataclass(frozen=True)
class Kinds:
    """Settings classes by kind, and the classes of the file built from them."""

    providers: ProviderKinds = field(default_factory=lambda: _installed("spangate.providers"))
    policies: PolicyKinds = field(default_factory=lambda: _installed("spangate.policies"))

    @cached_property
    def settings(self) -> type[Settings]:
        """`Settings` with the fields that plug-ins fill."""
        rule: Any = self._rule()
        alternatives: Any = (Annotated[str, Tag("<name>")], Annotated[rule, Tag("<rule>")])
        entries = GenericAlias(list, (Annotated[Union[alternatives], Discriminator(_entry_tag)],))
        team = create_model("Team", __base__=Team, __doc__=Team.__doc__, policies=_again(Team, "policies", entries))
        defaults = create_model("Defaults", __base__=Defaults, __doc__=Defaults.__doc__, policies=_again(Defaults, "policies", entries))
        names: Any = Settings.model_fields
        name, model_name = (names[key].annotation.__args__[0] for key in ("providers", "models"))
        return create_model(
            "Settings",
            __base__=Settings,
            __doc__=Settings.__doc__,
            providers=_again(Settings, "providers", GenericAlias(dict, (name, self._provider()))),
            models=_again(Settings, "models", GenericAlias(dict, (model_name, self._model()))),
            policies=_again(Settings, "policies", GenericAlias(dict, (name, GenericAlias(list, (rule,))))),
            defaults=_again(Settings, "defaults", defaults),
            teams=_again(Settings, "teams", GenericAlias(dict, (name, team))),
        )

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the file as pydantic makes it; schema.py makes the published one of it."""
        return self.settings.model_json_schema()

    def _provider(self) -> Any:
        """One class of several, by `kind`."""
        tagged = [Annotated[_with_kind(kind, settings), Tag(f"<{kind}>")] for kind, settings in sorted(self.providers.items())]
        if len(tagged) < 2:
            return tagged[0] if tagged else Any
        return Annotated[Union[tuple(tagged)], Discriminator(_provider_tag)]

    def _model(self) -> type[Model]:
        parts: dict[str, Any] = {
            kind: (settings, Field(default_factory=settings, description=_summary(settings)))
            for kind, settings in sorted(self.policies.items())
            if kind in MODEL_PARTS
        }
        return create_model("Model", __base__=Model, __doc__=Model.__doc__, **parts)

    def _rule(self) -> type[PolicyRule]:
        kinds: dict[str, Any] = {
            # The default is never validated: it marks the kinds that a rule doesn't have.
            kind: (_with_terms(settings), Field(default=None, description=_summary(settings)))
            for kind, settings in sorted(self.policies.items())
            if kind not in MODEL_PARTS
        }
        return create_model("PolicyRule", __base__=PolicyRule, __doc__=PolicyRule.__doc__, **kinds)


def _again(base: type[BaseModel], name: str, annotation: Any) -> Any:
    """The field of `base` with another annotation and the same words and default."""
    known = base.model_fields[name]
    default = annotation() if isinstance(annotation, type) and issubclass(annotation, BaseModel) else known.default
    return annotation, Field(default=default, description=known.description)


def _with_kind(kind: str, settings: type[BaseModel]) -> type[BaseModel]:
    """The class itself if it has `kind`, else one with it."""
    if "kind" in settings.model_fields:
        return settings
    fields: dict[str, Any] = {"kind": (Literal[kind], Field(description="Which kind of provider this is."))}
    return create_model(settings.__name__, __base__=settings, __doc__=settings.__doc__, **fields)


def _with_terms(settings: type[BaseModel]) -> type[BaseModel]:
    """The class with what every policy may carry."""
    fields: dict[str, Any] = {
        name: (field.rebuild_annotation(), field) for name, field in Terms.model_fields.items() if name not in settings.model_fields
    }
    return create_model(settings.__name__, __base__=settings, __doc__=settings.__doc__, **fields)


def _provider_tag(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return f"<{kind}>" if isinstance(kind, str) else None


def _entry_tag(value: Any) -> str:
    return "<name>" if isinstance(value, str) else "<rule>"


def _summary(settings: type[BaseModel]) -> str:
    return (settings.__doc__ or settings.__name__).strip().split("\n\n")[0].replace("\n", " ")


def _installed(group: str) -> dict[str, type[BaseModel]]:
    found: dict[str, Callable[[], Any]] = {kind: _loader(place) for kind, place in OURS[group].items()}
    found |= {entry.name: entry.load for entry in entry_points(group=group)}
    return {kind: _loaded(group, kind, load) for kind, load in found.items()}


def _loaded(group: str, kind: str, load: Callable[[], Any]) -> type[BaseModel]:
    try:
        settings: type[BaseModel] = load()
    except (ImportError, AttributeError) as error:
        told = f"{group} {kind}: this plug-in can't be imported: {error}"
        raise ConfigMistakes([Mistake("entry point", 0, 0, "", told)]) from error
    return settings


def _loader(place: str) -> Callable[[], Any]:
    module, _, name = place.partition(":")
    return lambda: getattr(import_module(module, __package__), name)
