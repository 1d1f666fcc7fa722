"""Which key is which caller. Decided by the key alone: nothing else in a request says who pays.

A key is looked up by its SHA-256, then compared in constant time. Missing, unknown, revoked and expired keys get one message; which of
these it was is a note on the call, for those who run the gateway.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from ..call.call import Caller
from ..call.errors import CallerFault, Refused
from ..call.notes import Notes
from .config import DEFAULT_FILE, Config, HeldKey

MAX_KEY = 4096


class Headers(Protocol):
    """Request headers, names in any case."""

    def get(self, name: str) -> str | None: ...
    def getall(self, name: str, default: list[str]) -> list[str]: ...
    def __contains__(self, name: object) -> bool: ...


@dataclass(frozen=True, slots=True)
class Holder:
    """What a virtual key stands for. `digest` is its SHA-256 in hexadecimal; `expires` is a moment in UTC."""

    caller: Caller
    digest: str
    expires: datetime | None = None


class Callers:
    """The keys of one configuration. Without any team (`teams` False) the gateway is open; `everywhere`: not only to loopback."""

    def __init__(self, holders: Iterable[Holder], *, teams: bool, everywhere: bool = False, now: Callable[[], int]) -> None:
        self._holders = {holder.digest: holder for holder in holders}
        self._open = not teams
        self._everywhere = everywhere
        self._now = now

    def who(self, headers: Headers, *, has_body: bool, notes: Notes | None = None) -> Caller:
        """The caller of a request. `notes` are told why it has none.

        Raises:
            Refused: invalid_api_key.
            CallerFault: two different keys in one request.
        """
        if self._open:
            if not self._everywhere:
                _from_here(headers, has_body=has_body)
            return Caller()
        key = presented_key(headers)
        holder = self._held(key) if key else None
        if holder is None or self._expired(holder):
            if notes is not None:
                notes.add("key.refused", **_why(key, holder))
            raise Refused("This needs a valid API key: send it as 'Authorization: Bearer sg-…'.", code="invalid_api_key")
        return holder.caller

    def holder(self, caller: Caller) -> Holder | None:
        """The key's own record, for its holder to read."""
        return next((h for h in self._holders.values() if h.caller.team == caller.team and h.caller.key == caller.key), None)

    def _held(self, key: str) -> Holder | None:
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
        holder = self._holders.get(digest)
        return holder if holder is not None and hmac.compare_digest(holder.digest, digest) else None

    def _expired(self, holder: Holder) -> bool:
        return holder.expires is not None and datetime.fromtimestamp(self._now() / 1e9, UTC) >= holder.expires


def _why(key: str, holder: Holder | None) -> dict[str, str]:
    """What was wrong with a key. One that was revoked is as unknown as one that never was."""
    if holder is None:
        return {"reason": "unknown" if key else "missing"}
    return {"reason": "expired", "team": holder.caller.team, "name": holder.caller.key}


def presented_key(headers: Headers) -> str:
    """The one key that a request shows, "" if none: `Authorization: Bearer`, `api-key` or `x-api-key`.

    Raises:
        CallerFault: it shows two that differ, and nobody could say which was meant.
    """
    if "Api-Key" not in headers and "X-Api-Key" not in headers and len(headers.getall("Authorization", [])) == 1:
        key = _bearer(headers.get("Authorization") or "")  # as nearly every client sends it
        return key if len(key) <= MAX_KEY else ""
    shown = [_bearer(value) for value in headers.getall("Authorization", [])]
    shown += [key.strip(" \t") for name in ("Api-Key", "X-Api-Key") for key in headers.getall(name, [])]
    keys = {key for key in shown if key}
    if len(keys) > 1:
        raise CallerFault("The request shows more than one API key; send one.", param="authorization")
    key = keys.pop() if keys else ""
    return key if len(key) <= MAX_KEY else ""


def _bearer(value: str) -> str:
    scheme, _, key = value.partition(" ")
    return key.strip(" \t") if scheme.lower() == "bearer" else ""


def _from_here(headers: Headers, *, has_body: bool) -> None:
    """An open gateway answers local programs only: a web page must not spend the key by way of a browser (DNS rebinding,
    or a form that needs no preflight)."""
    if not loopback_name(headers.get("Host") or ""):
        raise Refused("This gateway has no keys and is open to local callers only; address it as 127.0.0.1 or localhost.")
    kind = (headers.get("Content-Type") or "").partition(";")[0].strip().lower()
    if has_body and kind != "application/json":
        raise Refused("This gateway has no keys and is open to JSON requests only; send 'Content-Type: application/json'.")


def loopback_name(host: str) -> bool:
    """Whether a Host header, with or without a port, names this machine's loopback."""
    name = host.strip().lower()
    if name.startswith("["):
        name, closed, port = name[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            return False
        port = port.removeprefix(":")
    else:
        name, _, port = name.partition(":")
    if port and not port.isdecimal():
        return False
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def loopback_address(host: str) -> bool:
    """Whether listening on `host` is listening to this machine alone."""
    return loopback_name(f"[{host}]" if ":" in host else host)


def check_reach(host: str, *, teams: bool, everywhere: bool) -> None:
    """A gateway without keys must not listen to other machines unless that was said.

    Raises:
        ValueError: it would; the words say what to do.
    """
    if not teams and not everywhere and not loopback_address(host):
        raise ValueError(
            f"{host} is reachable from other machines and there is no team, so anybody could spend your provider's key: "
            "add a team with a key, listen on 127.0.0.1, or say --open"
        )


def valid_keys(config: Config, now: datetime) -> list[HeldKey]:
    """The keys that somebody can call with at this moment."""
    return [held for held in config.keys if held.key.expires is None or held.key.expires > now]


def check_keys(config: Config, now: datetime) -> None:
    """Teams, and no key that anybody could call with: such a gateway would refuse every call.

    Raises:
        ValueError: it is so; the words say what to do.
    """
    teams = config.settings.teams
    if not teams or valid_keys(config, now):
        return
    file = f" -c {config.path}" if config.path and str(config.path) != DEFAULT_FILE else ""
    told = "every key has expired" if config.keys else "no team has a key"
    raise ValueError(f"{told}, so nobody could call: spangate keys new {next(iter(teams))}{file}")
