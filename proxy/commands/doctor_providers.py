"""Whether each provider answers with its key, and knows the models that the configuration wants of it. No token is spent.

A provider is asked for its list in its own way; what goes over the wire meanwhile is overheard, whichever kind it is.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...call.errors import ProviderFault
from ..config import Config
from ..mistakes import did_you_mean, quoted
from ..providers.provider import Parts
from ..session_upstream import ProxyRules
from ..upstream import Body, Headers, Origin, Reply, Sender
from .doctor_clock import Reading, reading
from .doctor_findings import Finding, off, ok, problem, warning
from .words import count

SLOW = 2.0  # seconds
KEPT = 64 << 10  # bytes of an answer that are looked at


@dataclass(slots=True)
class Asked:
    """One request, and what came of it. `before` and `after` are wall time around the head of its answer."""

    origin: Origin
    before: float
    after: float = 0.0
    status: int = 0
    date: str = ""
    type: str = ""
    body: bytes = b""
    fault: ProviderFault | None = None

    def is_a_list(self) -> bool:
        """Whether it answered with a list, be it an empty one."""
        try:
            told = json.loads(self.body)
        except (ValueError, RecursionError):
            return False
        return isinstance(told, dict) and isinstance(told.get("data"), list)


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at one provider brought: `models` is its list, empty where there is none."""

    findings: list[Finding]
    models: tuple[str, ...] = ()
    readings: list[Reading] = field(default_factory=list)


class Overhearing:
    """A Sender that remembers what another one was asked and answered."""

    def __init__(self, sender: Sender) -> None:
        self.asked: list[Asked] = []
        self._sender = sender

    @property
    def resends(self) -> int:
        return self._sender.resends

    async def send(
        self, method: bytes, origin: Origin, path: str, headers: Headers, body: Body, *, connect: float, more: Headers = ()
    ) -> Reply:
        asked = Asked(origin, time.time())
        self.asked.append(asked)
        try:
            reply = await self._sender.send(method, origin, path, headers, body, connect=connect, more=more)
        except ProviderFault as fault:
            asked.fault = fault
            raise
        asked.after, asked.status = time.time(), reply.status
        asked.date, asked.type = (_text(reply.header(name)) for name in (b"date", b"content-type"))
        return Overheard(reply, asked)

    async def aclose(self) -> None:
        """The other one is closed by whoever opened it."""


class Overheard:
    """A Reply of which the beginning is kept."""

    def __init__(self, reply: Reply, asked: Asked) -> None:
        self.status, self.headers = reply.status, reply.headers
        self._reply = reply
        self._asked = asked

    def header(self, name: bytes) -> bytes | None:
        return self._reply.header(name)

    async def read(self) -> bytes:
        try:
            piece = await self._reply.read()
        except ProviderFault as fault:
            self._asked.fault = fault
            raise
        if len(self._asked.body) < KEPT:
            self._asked.body += piece
        return piece

    def release(self) -> None:
        self._reply.release()

    def close(self) -> None:
        self._reply.close()


async def look(name: str, config: Config, sender: Sender, rules: ProxyRules, patience: float) -> Looked:
    """Ask one provider for its list, for at most `patience` seconds."""
    check = f"provider {name}"
    settings = config.settings.providers[name]
    wire = Overhearing(sender)
    try:
        provider = settings.build(Parts(name, wire, folder=config.folder))
    except ValueError as error:
        return Looked([problem(check, str(error).partition("\n")[0])])
    began = time.monotonic()
    models: list[str] = []
    late = False
    try:
        async with asyncio.timeout(patience):
            models = await provider.models()
    except TimeoutError:
        late = True
    except ValueError as error:  # of the request itself, such as a key that can't be a header
        return Looked([problem(check, f"it can't be asked: {str(error)[:1].lower()}{str(error)[1:].rstrip('.')}", "look at its api_key")])
    if not wire.asked:
        return Looked([ok(check, f"asks nobody: it is {settings.kind}")], tuple(models))
    asked = wire.asked[-1]
    told = Telling(check, asked, settings, rules, config.variables)
    read = reading(asked.origin.host, asked.date, asked.before, asked.after) if asked.date else None
    finding = told.late(patience) if late else told.finding(models, time.monotonic() - began)
    return Looked([finding], tuple(models), [read] if read else [])


@dataclass(frozen=True, slots=True)
class Telling:
    """What came of asking a provider, in words."""

    check: str
    asked: Asked
    settings: Any
    rules: ProxyRules
    variables: Mapping[str, str]

    def finding(self, models: list[str], seconds: float) -> Finding:
        asked = self.asked
        if asked.fault is not None:
            return self._fault(asked.fault)
        if asked.status != 200:
            return self._status()
        if not models and not asked.is_a_list():
            kind = asked.type.partition(";")[0].strip()[:40] or "no content-type"
            return problem(
                self.check, f"{self.where} answers, but not with a list of models ({kind})", "base_url must go up to and with /v1"
            )
        if not models:
            return warning(self.check, f"{self.where} answers, and has no model", "load or pull one")
        told = f"{self.where} answers{' with its key' if self._key else ''}: {count(len(models), 'model')} in {seconds * 1000:.0f} ms"
        return warning(self.check, f"{told}, which is slow") if seconds > SLOW else ok(self.check, told)

    def late(self, patience: float) -> Finding:
        return problem(self.check, f"{self.where} gives no answer within {patience:g} s", self._reach())

    def _fault(self, fault: ProviderFault) -> Finding:
        words = fault.message.removeprefix("The provider can't be reached: ").rstrip(".")
        return problem(self.check, f"{self.where} can't be used: {words[:1].lower()}{words[1:]}", self._mend(words))

    def _mend(self, words: str) -> str:
        if "certificate" in words:
            return "if it has a certificate of your own authority, SSL_CERT_FILE names the file that holds it"
        if "TLS" in words:
            return "it may not speak TLS: try http:// in base_url"
        if "resolve" in words:
            return "check the host in base_url"
        if "refused" in words and not self.proxied:
            return "start it, or correct base_url"
        return self._reach()

    def _status(self) -> Finding:
        status = self.asked.status
        if status in (401, 403):
            if not self._key:
                return problem(self.check, f"{self.where} wants a key ({status})", "set its api_key")
            return problem(self.check, f"{self.where} refuses {self._named_key()} ({status})", "put one there that it takes")
        if status in (404, 405):
            told = f"{self.where} has no list of models ({status})"
            return warning(self.check, told, "if calls fail too, base_url is wrong: it goes up to and with /v1")
        if status == 407:
            return problem(
                self.check, f"the proxy to {self.where} wants a password (407)", "put user:password@ into the variable of the proxy"
            )
        if status == 429:
            return warning(self.check, f"{self.where} answers that its limit or quota is used up just now (429)", "see your account there")
        if 300 <= status < 400:
            return problem(self.check, f"{self.where} sends elsewhere ({status})", "write the address that it means in base_url")
        if status >= 500:
            return problem(self.check, f"{self.where} answers with status {status}", "it is in trouble: try again later")
        return problem(self.check, f"{self.where} answers with status {status}", "check base_url and flavor")

    @property
    def where(self) -> str:
        origin = self.asked.origin
        way = ", through the proxy of the environment," if self.proxied else ""
        return f"{origin.authority.decode()}{way}"

    @property
    def proxied(self) -> bool:
        return self.rules.proxy_for(self.asked.origin) is not None

    def _reach(self) -> str:
        if self.proxied:
            return "check HTTPS_PROXY and HTTP_PROXY; NO_PROXY names hosts that need none"
        return "check base_url, and whether a firewall or a missing HTTPS_PROXY is in the way"

    @property
    def _key(self) -> str:
        key = getattr(self.settings, "api_key", None)
        return key.get_secret_value() if key is not None else ""

    def _named_key(self) -> str:
        named = next((name for name, value in self.variables.items() if value == self._key), "")
        return f"the key of ${{{named}}}" if named else "its api_key"


def known(config: Config, lists: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """Whether each provider lists the models that are wanted of it. Lists leave out aliases, so that one that isn't there is doubtful."""
    there = doubtful = unlisted = 0
    for name, model in config.settings.models.items():
        for target in model.targets:
            wanted = target.model or name
            listed = lists.get(target.provider, ())
            if "*" in wanted:
                continue
            if not listed:
                unlisted += 1
            elif wanted in listed or f"{wanted}:latest" in listed:
                there += 1
            else:
                doubtful += 1
                told = f"{target.provider} doesn't list {quoted(wanted)}{did_you_mean(wanted, listed)}"
                yield warning(f"model {name}", told, "unless it is an alias there, calls will fail")
    if there:
        cannot = f"; of {unlisted} no list tells" if unlisted else ""
        yield ok("models", f"{there} known to their providers{cannot}")
    elif unlisted:
        yield off("models", "no list tells whether they are known")
    elif not doubtful:
        yield ok("models", "names are passed on as they come")


def _text(value: bytes | None) -> str:
    return (value or b"").decode("latin-1")
