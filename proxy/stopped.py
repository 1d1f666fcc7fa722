"""What is stopped, ready to be asked for each call; and in which words a call is refused for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from ..call.call import Caller, Target
from ..call.errors import Refused, shortened
from ..call.notes import Notes
from ..call.rules import fits_glob
from ..policies.refusals import TargetRefused
from .stops_file import Turns

_WHAT = {
    "team": "Calls of the team {!r} are stopped",
    "key": "Calls with the key {!r} are stopped",
    "model": "The model {!r} is stopped",
    "provider": "The provider {!r} is stopped",
}


class Stopped:
    """Kill switches that are on. `since` says when each was turned. `callers`: some are of teams or keys, `targets`: some of models or
    providers; while neither is so, a call asks no more than that."""

    __slots__ = ("_patterns", "callers", "since", "targets")

    def __init__(self, turns: Turns) -> None:
        self.since: Mapping[str, datetime] = {switch: turn.at for switch, turn in sorted(turns.items()) if turn.stopped}
        self.callers = any(switch.startswith(("team:", "key:")) for switch in self.since)
        self.targets = any(switch.startswith(("model:", "provider:")) for switch in self.since)
        models = [switch.removeprefix("model:") for switch in self.since if switch.startswith("model:")]
        self._patterns = [name for name in models if "*" in name]

    def check_caller(self, caller: Caller, notes: Notes) -> None:
        """
        Raises:
            Refused: `stopped`: the caller's team or key is.
        """
        for switch, name in ((f"team:{caller.team}", caller.team), (f"key:{caller.team}/{caller.key}", f"{caller.team}/{caller.key}")):
            if switch in self.since:
                raise self._refused(Refused, switch, name, notes)

    def check_target(self, model: str, target: Target, notes: Notes) -> None:
        """A call for `model`, which would go to `target`.

        Raises:
            TargetRefused: `stopped`: the provider is, or the model by either name.
        """
        switch = f"provider:{target.provider}"
        if switch in self.since:
            raise self._refused(TargetRefused, switch, target.provider, notes)
        self._check_model(model, notes)
        if target.model != model:
            self._check_model(target.model, notes)

    def _check_model(self, model: str, notes: Notes) -> None:
        switch = f"model:{model}"
        if switch not in self.since:
            switch = next((f"model:{pattern}" for pattern in self._patterns if fits_glob(pattern, model)), "")
        if switch:
            raise self._refused(TargetRefused, switch, model, notes)

    def _refused(self, kind: type[Refused], switch: str, name: str, notes: Notes) -> Refused:
        since = self.since[switch].astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        notes.add("stop.refused", rule=switch, since=since)
        what = _WHAT[switch.partition(":")[0]].format(shortened(name))
        told = f"{what} by whoever runs this gateway, since {since}; trying again changes nothing until they resume it."
        return kind(told, code="stopped", facts={"stopped": {"switch": switch, "since": since}})
