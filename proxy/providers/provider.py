"""What a provider is: the innermost place, which answers one call by asking somebody's API.

A provider is one file here with a settings class (`kind` names it) whose `build` makes it. It yields `Opened` only with the first
content or the end (product.md), and raises ProviderFault before; after `Opened` it raises on anything that isn't a good end. The
contract tests in tests/proxy/providers/contract.py hold for every one of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ...call.call import Call
from ...call.clock import SYSTEM, Clock
from ...call.events import Event
from ...call.seen import Place
from ...policies.turns import Heard
from ..upstream import Sender


class Provider(Protocol):
    """`name` is its name in the configuration, `place` what telemetry says of it. One that tells of limits of its own has `lines`
    (policies/turns.py) besides, which it gives the head of each answer, with the call's `turn`."""

    name: str
    place: Place

    def answer(self, call: Call) -> AsyncIterator[Event]:
        """The innermost Next: `call.target.model` is asked.

        Raises:
            ProviderFault: no answer, or none to its end.
        """
        ...

    async def models(self) -> list[str]:
        """The model names that its own list holds; an unreachable one has none."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What the gateway gives a provider to be built from. `folder`: where the configuration file lies; `heard`: what all providers have
    told of their limits, of which it takes what was told to its own key."""

    name: str
    client: Sender
    clock: Clock = SYSTEM
    folder: Path = Path()
    heard: Heard = field(default_factory=Heard)


class ProviderSettings(Protocol):
    def build(self, parts: Parts) -> Provider: ...
