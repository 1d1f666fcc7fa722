"""Sending through a forward proxy that the environment names (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY).

The lean client speaks to origins; tunnels, proxy authorization and TLS within them are left to aiohttp's ClientSession, which costs more
per call. Here belong the rules that say which origin goes through which proxy, and the session dressed as a Sender: no redirects,
no cookies, no decoding, no time limit but connect's, and no second use of a connection whose answer wasn't read to its end.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import aiohttp

from ..call.errors import ProviderFault, UpstreamError, UpstreamIncomplete, UpstreamTimeout, UpstreamUnreachable
from .connection import ABANDONED, CUT, HEAD_LIMIT, JOINED, NOT_HTTP, SLICE, UNANSWERED, Body, first, head_fault
from .upstream import READ_LIMIT, Headers, Origin, Reply, Sender, Upstream, request_head, unreachable

AUTOMATIC = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


def upstream_for(environ: Mapping[str, str], *, keepalive: float = 30.0, max_idle: int = 256, read_limit: int = READ_LIMIT) -> Sender:
    """The Sender for a process with this environment. ValueError, with a sentence, for a proxy that can't be used."""
    direct = Upstream(keepalive=keepalive, max_idle=max_idle, read_limit=read_limit)
    rules = ProxyRules.parse(environ)
    if not rules.proxies:
        return direct
    return ProxiedUpstream(direct, rules, keepalive=keepalive, read_limit=read_limit)


@dataclass(frozen=True, slots=True)
class ProxyRules:
    """Which proxy an origin is reached through: one per scheme, and the hosts that are reached without."""

    proxies: Mapping[str, str]
    without: tuple[str, ...] = ()

    @classmethod
    def parse(cls, environ: Mapping[str, str]) -> ProxyRules:
        proxies = {}
        for scheme in ("http", "https"):
            for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"):
                if value := environ.get(name, "").strip():
                    proxies[scheme] = proxy_url(name, value)
                    break
        without = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
        return cls(proxies, tuple(entry for entry in without.lower().replace(",", " ").split()))

    def proxy_for(self, origin: Origin) -> str | None:
        if any(covers(entry, origin.host, origin.port) for entry in self.without):
            return None
        return self.proxies.get(origin.scheme)


def proxy_url(name: str, value: str) -> str:
    """A proxy without a scheme is an http one. The value may hold a password: it is in no message."""
    url = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"{name} names no proxy that can be used: write http://host:port or https://host:port.")
    return url


def covers(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY means this host: `*`, a domain and all below it, an address, a network; each but a network with or
    without a port."""
    if "/" in entry:
        try:
            return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, digits = entry.rpartition(":")
    if colon and digits.isdigit() and (":" not in name or name.endswith("]")):
        if int(digits) != port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*.").removeprefix(".").rstrip(".")
    host = host.rstrip(".")
    return entry == "*" or (bool(entry) and (host == entry or host.endswith(f".{entry}")))


class ProxiedUpstream:
    """Sends to each origin directly or through its proxy, as the rules say."""

    def __init__(self, direct: Upstream, rules: ProxyRules, *, keepalive: float, read_limit: int) -> None:
        self._direct = direct
        self._rules = rules
        self._sessions = {url: SessionUpstream(url, keepalive=keepalive, read_limit=read_limit) for url in set(rules.proxies.values())}

    @property
    def resends(self) -> int:
        return self._direct.resends + sum(session.resends for session in self._sessions.values())

    async def send(
        self, method: bytes, origin: Origin, path: str, headers: Headers, body: Body, *, connect: float, more: Headers = ()
    ) -> Reply:
        proxy = self._rules.proxy_for(origin)
        sender: Sender = self._direct if proxy is None else self._sessions[proxy]
        return await sender.send(method, origin, path, headers, body, connect=connect, more=more)

    async def aclose(self) -> None:
        await self._direct.aclose()
        for session in self._sessions.values():
            await session.aclose()


class SessionUpstream:
    """Sends requests to origins through one proxy, over aiohttp."""

    def __init__(self, proxy: str, *, keepalive: float = 30.0, read_limit: int = READ_LIMIT) -> None:
        self.resends = 0
        parts = urlsplit(proxy)
        self._proxy = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._authorization: dict[str, str] = {}
        if parts.username:
            basic = aiohttp.encode_basic_auth(unquote(parts.username), unquote(parts.password or ""))
            self._authorization["Proxy-Authorization"] = basic
        self._keepalive = keepalive
        self._read_limit = read_limit
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def send(
        self, method: bytes, origin: Origin, path: str, headers: Headers, body: Body, *, connect: float, more: Headers = ()
    ) -> SessionAnswer:
        """As Upstream.send. A resend only where it is certain that no byte of the answer came: not after a reset."""
        length = sum([part.nbytes if isinstance(part, memoryview) else len(part) for part in body])
        request_head(method, origin, path, headers, length, more=more)  # refuses what it refuses there
        pairs = [(name.decode(), value.decode()) for name, value in (*headers, *more)]
        if length or method != b"GET":
            pairs.append(("content-length", str(length)))
        if origin.scheme == "http":
            pairs += self._authorization.items()  # without a tunnel the proxy reads the request itself
        reused: list[bool] = []

        async def once(session: aiohttp.ClientSession) -> SessionAnswer:
            response = await session.request(
                method.decode(),
                f"{origin.scheme}://{origin.authority.decode()}{origin.path}{path}",
                headers=pairs,
                data=(b"".join(body) if length <= JOINED else Slices(body)) if length else None,
                proxy=self._proxy,
                proxy_headers=self._authorization,
                ssl=origin.ssl or True,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=connect),
                trace_request_ctx=reused,
            )
            return answered(response)

        try:
            try:
                return await once(self._session(fresh=False))
            except aiohttp.ServerDisconnectedError as error:
                if not reused or not isinstance(error.message, str):  # a message: the part of a head that came
                    raise
            self.resends += 1
            return await once(self._session(fresh=True))
        except (aiohttp.ClientError, OSError) as error:
            raise fault(error, origin, connect) from error

    async def aclose(self) -> None:
        for session in self._sessions.values():
            await session.close()

    def _session(self, *, fresh: bool) -> aiohttp.ClientSession:
        """The session that reuses connections, or the one that makes one for each request."""
        session = self._sessions.get(fresh)
        if session is None:
            keep = {"force_close": True} if fresh else {"keepalive_timeout": self._keepalive}
            tracing = aiohttp.TraceConfig()
            tracing.on_connection_reuseconn.append(note_reuse)
            session = self._sessions[fresh] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, **keep),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                skip_auto_headers=AUTOMATIC,
                read_bufsize=self._read_limit // 2,  # aiohttp pauses at twice that
                max_line_size=HEAD_LIMIT,
                max_field_size=HEAD_LIMIT,
                trace_configs=[tracing],
            )
        return session


async def note_reuse(_session: object, context: object, _params: object) -> None:
    getattr(context, "trace_request_ctx", []).append(True)


class Slices:
    """A large body as aiohttp takes it: piece by piece, without a copy. (A class, so that one left unfinished is no open generator.)"""

    def __init__(self, body: Body) -> None:
        self._slices = (
            view[at : at + SLICE] for part in body for view in [memoryview(part).cast("B")] for at in range(0, len(view), SLICE)
        )

    def __aiter__(self) -> Slices:
        return self

    async def __anext__(self) -> memoryview:
        for each in self._slices:
            return each
        raise StopAsyncIteration


def answered(response: aiohttp.ClientResponse) -> SessionAnswer:
    answer = SessionAnswer(response)
    wrong = head_fault(answer.status, answer.headers)
    if wrong is not None:
        answer.close()
        raise wrong
    return answer


class SessionAnswer:
    """The head of an answer, and its body as it comes; see Answer."""

    __slots__ = ("_closed", "_ended", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = [(name.lower(), value) for name, value in response.raw_headers]
        self._response = response
        self._ended = self._closed = False

    def header(self, name: bytes) -> bytes | None:
        return first(self.headers, name)

    async def read(self) -> bytes:
        if self._ended:
            return b""
        if self._closed:
            raise UpstreamIncomplete(ABANDONED)
        data = b""
        try:
            data = await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamIncomplete(CUT, detail=repr(error)) from error
        finally:
            if not data and not self._response.content.at_eof():
                self.close()  # failed or cancelled
        self._ended = not data
        return data

    def release(self) -> None:
        self.close()

    def close(self) -> None:
        """aiohttp has given back the connection of an answer that ended, if all of the request was sent; any other is closed here."""
        self._closed = True
        self._response.close()


def fault(error: Exception, origin: Origin, connect: float) -> ProviderFault:
    """What aiohttp's error means for a call."""
    place = f"{origin.host}:{origin.port}: {error!r}"
    if isinstance(error, aiohttp.ServerTimeoutError):
        text = f"The provider can't be reached: no connection within {connect:g} seconds."
        return UpstreamTimeout(text, limit="connect", detail=place)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return UpstreamUnreachable(f"The provider can't be reached: the proxy answered {error.status}.", detail=place)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return UpstreamUnreachable("The provider can't be reached: no connection to the proxy.", detail=place)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return UpstreamUnreachable("The provider can't be reached: its TLS certificate is not trusted.", detail=place)
    if isinstance(error, aiohttp.ClientConnectorError):
        return unreachable(error.os_error, origin)
    if isinstance(error, aiohttp.ClientResponseError):
        return UpstreamError(NOT_HTTP, detail=place)
    return UpstreamIncomplete(UNANSWERED, detail=place)


__all__ = ["ProxiedUpstream", "ProxyRules", "SessionAnswer", "SessionUpstream", "upstream_for"]
