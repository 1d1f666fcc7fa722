"""Where a provider lives: scheme, host, port and path prefix, parsed once from its base_url."""

from __future__ import annotations

import functools
import ipaddress
import re
import ssl
from dataclasses import dataclass, field

Key = tuple[str, str, int, ssl.SSLContext | None]

URL = re.compile(r"(?P<scheme>(?i:https?))://(\[(?P<v6>[^]/]*)\]|(?P<host>[^][:/]+))(:(?P<port>[^/]*))?(?P<path>/.*)?")
HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?")


@functools.cache
def default_context() -> ssl.SSLContext:
    """One for all origins: a context takes 10 ms to make, and origins that share one share the pool."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a provider lives; parsed once from its base_url. `path` is a prefix without a slash at its end."""

    scheme: str
    host: str
    port: int
    path: str = ""
    ssl: ssl.SSLContext | None = None
    key: Key = field(init=False, repr=False, compare=False)
    authority: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == (443 if self.scheme == "https" else 80) else f":{self.port}"
        object.__setattr__(self, "key", (self.scheme, self.host, self.port, self.ssl))
        object.__setattr__(self, "authority", f"{name}{port}".encode("ascii"))

    def __hash__(self) -> int:
        return hash((self.host, self.port, self.path))  # enough to tell them apart, and asked for at every request

    @classmethod
    def parse(cls, base_url: str) -> Origin:
        """Raises ValueError, with a sentence, for anything but http(s)://host[:port][/path]."""
        if not printable(base_url):
            raise ValueError("A base_url is printable ASCII without spaces (write an international host name as punycode).")
        if "?" in base_url or "#" in base_url or "\\" in base_url:
            raise ValueError("A base_url has no query, no fragment and no backslash.")
        if "@" in base_url.partition("://")[2].partition("/")[0]:
            raise ValueError("A base_url holds no user name and no password; set the provider's key instead.")
        parts = URL.fullmatch(base_url)
        if parts is None:
            raise ValueError("A base_url starts with http:// or https:// and a host.")
        scheme = parts["scheme"].lower()
        return cls(
            scheme,
            _address(parts["v6"]) if parts["v6"] is not None else _name(parts["host"]),
            _port(parts["port"]) if parts["port"] is not None else (443 if scheme == "https" else 80),
            (parts["path"] or "").rstrip("/"),
            default_context() if scheme == "https" else None,
        )


def printable(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _name(name: str) -> str:
    if not HOST.fullmatch(name):
        raise ValueError("The host of a base_url is a DNS name or an IP address.")
    return name.lower()


def _address(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        address = None
    if address is None or address.scope_id:
        raise ValueError("The host of a base_url in brackets is an IPv6 address without a zone.")
    return str(address)


def _port(digits: str) -> int:
    if not digits.isdigit() or not 0 < int(digits[:6]) < 65536:
        raise ValueError("The port of a base_url is a number from 1 to 65535.")
    return int(digits)
