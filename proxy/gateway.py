"""policies + routes + providers → one Next for each team and model. Built from a configuration, and frozen like it: a reload builds
another, and calls keep the one that they began with.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

from ..call.call import Call, Caller, Target
from ..call.chain import Next, Policy, chain, in_order
from ..call.clock import SYSTEM, Clock
from ..call.errors import Refused, model_not_found
from ..call.events import Event
from ..call.rules import fits_glob
from ..call.seen import Seen
from ..exporters.observe import Around, Attempt
from ..policies import beforehand
from ..policies.access import Access
from ..policies.admission import Admission
from ..policies.bounds import STAGE, Bound, Kind
from ..policies.charge import Books, books_of
from ..policies.ledger.memory import MemoryLedger
from ..policies.meter import Meter
from ..policies.provider_limits import ProviderLimits
from ..policies.terms import holds, terms_of, under
from .callers import Callers, Holder
from .config import Config
from .document import path_text
from .pricing import Pricing
from .providers.provider import Parts, Provider, ProviderSettings
from .rules import Placed
from .switches import Switches
from .upstream import Sender

Inbound = Literal["trust", "link", "ignore"]
LISTING = 5.0  # seconds that a provider may take to list its models; one that takes longer has none
LISTED = 300.0  # seconds for which a provider's own list of models is believed
UNLISTED = 5.0  # seconds for which a provider that listed none isn't asked again


@dataclass(frozen=True, slots=True)
class Route:
    """A name of `models`, and what stands behind it. `model` None: the provider is asked for the name that was asked for."""

    pattern: str
    provider: str
    model: str | None
    policies: tuple[Policy, ...]


class Gateway:
    """One configuration at work."""

    def __init__(
        self,
        config: Config,
        client: Sender,
        *,
        clock: Clock = SYSTEM,
        everywhere: bool = False,
        detailed: bool = False,
        inbound: Inbound = "trust",
        opening: Callable[[Seen, Mapping[str, Any] | None], None] | None = None,
        listing: float = LISTING,
        books: Books | None = None,
        trouble: Callable[[], str] | None = None,
        switches: Switches | None = None,
    ) -> None:
        """`books`: what calls hold and have used, and `switches`: what is stopped, which both outlive a configuration; its own where none
        are given. `trouble`: why the books can't be kept through a crash just now; empty: they can."""
        self.config = config
        self.switches = switches or Switches()
        self.clock = clock
        self._listing = listing
        self.detailed = detailed
        self.inbound = inbound
        self._opening = opening
        books = books or books_of(MemoryLedger(clock=clock), clock=clock)
        self.providers: Mapping[str, Provider] = {
            name: cast("ProviderSettings", settings).build(Parts(name, client, clock, config.folder, books.heard))
            for name, settings in config.settings.providers.items()
        }
        pricing = Pricing(config.settings.prices, {name: provider.place for name, provider in self.providers.items()}, clock)
        self.books = replace(books, pricing=pricing, opened=opening, trouble=trouble)
        self._everywhere = everywhere
        self.callers = callers_of(config, clock, everywhere=everywhere)
        self._routes = sorted((_route(config, name) for name in config.settings.models), key=_precedence)
        self._exact = {route.pattern: route for route in self._routes}
        self._open_ended = [route for route in self._routes if "*" in route.pattern]
        self._nexts: dict[tuple[str, str], Next] = {}
        self._bounds: dict[str, list[Bound]] = {}
        self._listed: dict[str, tuple[float, list[str]]] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    def rekeyed(self, config: Config) -> Gateway:
        """The same with the keys of `config`, which differs in nothing else."""
        other = copy(self)
        other.config = config
        other.callers = callers_of(config, self.clock, everywhere=self._everywhere)
        return other

    def next_for(self, caller: Caller, model: str) -> Next:
        """The onion that answers `model` for this caller.

        Raises:
            Refused: model_not_found, in the words that a forbidden model gets.
        """
        route = self._route_of(model)
        if route is None:
            raise model_not_found(model, self._names(caller.team))
        key = (caller.team, route.pattern)
        found = self._nexts.get(key)
        if found is None:
            found = self._nexts[key] = self._build(caller.team, route)
        return found

    async def before_body(self, call: Call) -> None:
        """A client asks whether to send its body, so that `call` has none yet.

        Raises:
            Refused: no body would get it admitted.
        """
        if bounds := self.bounds_of(call.caller.team):
            await beforehand.check(bounds, self.books, call)

    def _route_of(self, model: str) -> Route | None:
        return self._exact.get(model) or next((route for route in self._open_ended if fits_glob(route.pattern, model)), None)

    def _build(self, team: str, route: Route) -> Next:
        bounds = self.bounds_of(team)
        if not bounds:
            return self._chain(team, route, [])
        admission = Admission(
            bounds, self.books, target_of=partial(_target, route), elsewhere=lambda model: self._inside(team, model, route)
        )
        return self._chain(team, route, [admission, self._meter(bounds)])

    def _inside(self, team: str, model: str, asked: Route) -> Next:
        """Who answers for another model within admission: a downgraded call."""
        route = self._route_of(model) or asked
        key = (team, f"inside {route.pattern}")
        found = self._nexts.get(key)
        if found is None:
            found = self._nexts[key] = self._chain(team, route, [self._meter(self.bounds_of(team))], above=STAGE)
        return found

    def _meter(self, bounds: Iterable[Bound]) -> Meter:
        return Meter(self.books, [bound for bound in bounds if bound.per == "provider"])

    def _chain(self, team: str, route: Route, more: Iterable[Policy], *, above: int = 0) -> Next:
        """The onion of a team and route, of the layers above a stage. With `more`, what all its budgets and limits are together."""
        refusal = partial(self._not_found, team)
        own = Placed("access", self._access(team), team, ("teams", team, "models", "access"))
        listed = [own, *self.config.rules_of(team or None)]
        rules = [
            self._layer(rule, refusal)
            for rule in listed
            if not hasattr(rule.settings, "bounds") and not (isinstance(rule.settings, Access) and rule.settings.everything)
        ]
        provider = self.providers[route.provider]
        chosen: list[Policy] = [Stopping(route, self.switches), Targeting(route, self.switches)]
        if (lines := getattr(provider, "lines", None)) is not None:
            chosen.append(ProviderLimits(route.provider, lines, self.books.tokens, clock=self.clock))
        policies = in_order([*rules, *more, *route.policies, *chosen])
        policies = [policy for policy in policies if getattr(policy, "stage", 50) > above]
        answer = chain([Attempt(provider.place, self.detailed, self._opening, self.books.tokens)], provider.answer)
        return chain([Around(), *policies] if not above else policies, answer)

    def refuses_without_state(self, *kinds: Kind) -> bool:
        """Whether somebody's calls are refused while the counters of such rules can't be reached, or can't be kept."""
        bounds = [bound for team in self.config.settings.teams or ("",) for bound in self.bounds_of(team)]
        return any(bound.kind in kinds and bound.on_state_error == "refuse" and not bound.shadow for bound in bounds)

    def bounds_of(self, team: str) -> list[Bound]:
        """What the team's budgets and limits are to its calls. Made once: two routes share what is known of their counters."""
        found = self._bounds.get(team)
        if found is None:
            found = self._bounds[team] = [bound for rule in self.config.rules_of(team or None) for bound in _bounds(rule)]
        return found

    def _layer(self, rule: Placed, refusal: Callable[[Call], Refused]) -> Policy:
        """What a policy of the configuration is in the onion, under its terms (`mode`, `when`): what its settings build, or the settings
        themselves. `refusal`: in which words the team is refused a model."""
        settings = rule.settings.refusing(refusal) if isinstance(rule.settings, Access) else rule.settings
        build: Callable[[Clock], Policy] | None = getattr(settings, "build", None)
        layer = build(self.clock) if build is not None else cast("Policy", settings)
        terms = terms_of(settings)
        return under(layer, kind=rule.kind, mode=terms.mode, when=terms.when, rule=path_text(rule.path[:-1]))

    def _access(self, team: str) -> Access:
        """The team's allow-list. Without a list every name of `models` may be asked for."""
        allowed = self.config.settings.teams[team].models if team else ["*"]
        return Access(models=tuple(allowed))

    def _names(self, team: str) -> list[str]:
        """The exact names that a team's callers may ask for."""
        return [route.pattern for route in self._routes if "*" not in route.pattern and self._allows(team, route.pattern)]

    def _allows(self, team: str, model: str) -> bool:
        return all(rule.allows(model) for rule in self._lists(team) if terms_of(rule).none)  # what holds at times hides nothing

    def _lists(self, team: str) -> list[Access]:
        return [self._access(team), *(s for _, s in self.config.policies_of(team or None) if isinstance(s, Access))]

    def _not_found(self, team: str, call: Call) -> Refused:
        """A model that a rule forbids the team: always, in the words for one that nobody knows, or for this call."""
        names = self._names(team)
        if not self._allows(team, call.model):
            return model_not_found(call.model, names)
        holding = [rule for rule in self._lists(team) if holds(rule, call)]
        return model_not_found(call.model, [name for name in names if all(rule.allows(name) for rule in holding)], call=True)

    async def models(self, caller: Caller) -> list[str]:
        """What `/v1/models` lists: exact names, and for a pattern what its provider's own list holds."""
        asked = dict.fromkeys(route.provider for route in self._open_ended)
        lists = await asyncio.gather(*(self._list(provider) for provider in asked))
        found = dict.fromkeys(self._names(caller.team))
        for provider, names in zip(asked, lists, strict=True):
            for name in names:
                route = self._route_of(name)
                # What one provider lists and a pattern sends to another is nothing that anybody would get.
                if route is not None and "*" in route.pattern and route.provider == provider and self._allows(caller.team, name):
                    found[name] = None
        return list(found)

    async def owner(self, caller: Caller, model: str) -> str:
        """The provider behind a name that `/v1/models` lists.

        Raises:
            Refused: model_not_found, in the words that a forbidden model gets.
        """
        route = self._route_of(model)
        if (
            route is None
            or not self._allows(caller.team, model)
            or ("*" in route.pattern and model not in await self._list(route.provider))
        ):
            raise model_not_found(model, self._names(caller.team))
        return route.provider

    async def _list(self, provider: str) -> list[str]:
        """What a provider lists. It is asked once at a time, however many wait for it."""
        async with self._asking.setdefault(provider, asyncio.Lock()):
            at, names = self._listed.get(provider, (-LISTED, []))
            if self.clock.mono() - at >= (LISTED if names else UNLISTED):
                names = await self._ask(provider)
                self._listed[provider] = (self.clock.mono(), names)
            return names

    async def _ask(self, provider: str) -> list[str]:
        try:
            async with asyncio.timeout(self._listing):
                return await self.providers[provider].models()
        except TimeoutError:
            return []

    def providers_of(self, names: Iterable[str]) -> dict[str, str]:
        """For each model name, the provider behind it: what `/v1/models` calls its owner."""
        routes = {name: self._route_of(name) for name in names}
        return {name: route.provider for name, route in routes.items() if route is not None}


def _bounds(rule: Placed) -> Iterable[Bound]:
    """What a budget or limit is to a call; of any other rule nothing."""
    settings: Any = rule.settings
    for bound in settings.bounds(rule.origin) if hasattr(settings, "bounds") else ():
        bound.rule = path_text(rule.path[:-1])
        if bound.applies is not None:
            bound.applies.rule = bound.rule
        yield bound


def _target(route: Route, call: Call) -> Target:
    return Target(route.provider, route.model or call.model)


class Stopping:
    """Refuses a model that is stopped, and a route all of whose targets are, before anything is held for the call."""

    stage = 15

    def __init__(self, route: Route, switches: Switches) -> None:
        self._route = route
        self._switches = switches

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        stopped = self._switches.now
        if stopped.targets:
            stopped.check_target(call.model, _target(self._route, call), call.notes)
        return next(call)


class Targeting:
    """Sends calls to the one target of a route. Where there are several to choose from, this is where they are; one that is stopped is not
    among them, also for a call that a budget has sent to another model."""

    stage = 50

    def __init__(self, route: Route, switches: Switches) -> None:
        self._route = route
        self._switches = switches

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        target = _target(self._route, call)
        stopped = self._switches.now
        if stopped.targets:
            stopped.check_target(call.model, target, call.notes)
        return next(call.to(target))


def _route(config: Config, name: str) -> Route:
    target = config.settings.models[name].targets[0]
    parts: list[Any] = [settings for _, settings in config.parts_of(name)]
    return Route(name, target.provider, target.model, tuple(parts))


def _precedence(route: Route) -> tuple[bool, int]:
    """Exact names first, in the file's order, then longer patterns before shorter ones."""
    return ("*" in route.pattern, -len(route.pattern) if "*" in route.pattern else 0)


def callers_of(config: Config, clock: Clock, *, everywhere: bool = False) -> Callers:
    """Every key of a configuration, as its holder."""
    holders = [
        Holder(
            Caller(config.organisation_of(held.team), held.team, held.key.name),
            held.key.hash.removeprefix("sha256:"),
            held.key.expires,
        )
        for held in config.keys
    ]
    return Callers(holders, teams=bool(config.settings.teams), everywhere=everywhere, now=clock.wall)
