"""Who tries keys. From one address so many wrong ones are answered as such; more of them are told to come back later.

A key holds 256 random bits, so that guessing leads nowhere; what this spares is work, and the search for a key that leaked in part. A good
key is good from anywhere at any time: callers behind one address don't suffer for each other.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from math import ceil

from ..call.clock import Clock
from ..call.errors import Refused, SpangateError

AT_ONCE = 100  # wrong keys of one source, after which there are
A_MINUTE = 100  # so many
SOURCES = 4096  # that are remembered; of more the one that tried last longest ago is forgotten


class Guessing:
    """The wrong keys of late, by source."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.mono
        self._sources: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when that was

    def judged(self, error: SpangateError, address: str) -> SpangateError:
        """What is answered to a request from there that ended so. A local socket has no address."""
        if error.code != "invalid_api_key" or not address:
            return error
        source, now = source_of(address), self._now()
        left, at = self._sources.pop(source, (float(AT_ONCE), now))
        left = min(AT_ONCE, left + (now - at) * A_MINUTE / 60)
        allowed = left >= 1
        self._sources[source] = left - allowed, now
        if len(self._sources) > SOURCES:
            self._sources.popitem(last=False)
        if allowed:
            return error
        wait = max(1, ceil((1 - left) * 60 / A_MINUTE))
        words = "Too many requests with a missing or wrong API key came from this address; try again later, with the right one."
        return Refused(words, code="rate_limit_exceeded", headers={"retry-after": str(wait)})


def source_of(address: str) -> str:
    """Whoever has one address of IPv6 has its whole network of 64 bits."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or found.exploded[:19])
