"""What spangate.yaml may say: one class a section, one field a key, one docstring a field.

The docstrings are the product's words: the reference page and the editor's JSON Schema are made of them. A rule that needs only
the value itself stands here; one that compares places stands in checks.py. Sections that plug-ins extend (providers, policies, what
is set under a model) get their classes in kinds.py.
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from ..call.amounts import Duration, Number, Size
from ..exporters.settings import Telemetry
from ..exporters.usage.settings import Price, Usage

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
MODEL_PATTERN = r"^[!-~]{1,200}$"
HASH_PATTERN = r"^sha256:[0-9a-f]{64}$"
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}", re.ASCII)
HOST_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)", re.ASCII)

# Read as identity and written to every row, these would spread secrets.
SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "api-key", "x-api-key", "cookie", "set-cookie"})


class Section(BaseModel):
    """A mapping of the file: frozen, without unknown keys, and never quoting what it was given."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)


def _host(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        labels = value.rstrip(".").split(".")
        # A name of digits and dots alone is an address with a slip in it.
        if re.fullmatch(r"[0-9.:]+", value) or not all(HOST_LABEL.fullmatch(label) for label in labels) or len(value) > 253:
            raise ValueError("must be an IP address or a host name") from None
    return value


def _port(value: object) -> int:
    # Text too: an address often comes from the environment.
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
        raise ValueError("must be a port, 0 to 65535 (0: any free one)")
    return value


def _origin(value: str) -> str:
    if value == "*":
        return value
    if not _is_origin(value):
        raise ValueError("must be an origin such as https://app.example.com, without a path, or *")
    return value


def _is_origin(value: str) -> bool:
    try:
        parts = urlsplit(value)
        plain = f"{parts.scheme}://{parts.netloc}" == value and parts.port != 0
    except ValueError:
        return False
    return plain and parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc


def _header(value: str) -> str:
    if not TOKEN.fullmatch(value):
        raise ValueError("must be a header name")
    if value.lower() in SECRET_HEADERS:
        raise ValueError("must not be a header that carries a secret")
    return value.lower()


def _hash(value: object) -> str:
    # Never the value: people paste the key itself here.
    if isinstance(value, str) and value.startswith("sg-"):
        raise ValueError("is a key, not its hash; `spangate keys new` makes a key and writes its hash")
    if not isinstance(value, str) or not re.fullmatch(HASH_PATTERN, value):
        raise ValueError("must be sha256: and 64 hexadecimal digits in lower case")
    return value


def moment(value: object) -> datetime:
    """A date or date and time, in UTC unless it says otherwise. A date is its first moment: a key ends rather early than late."""
    read: datetime | None = None
    if isinstance(value, datetime):
        read = value
    elif isinstance(value, date):
        read = datetime(value.year, value.month, value.day, tzinfo=UTC)
    elif isinstance(value, str):
        with suppress(ValueError):
            read = datetime.fromisoformat(value)
    if read is None:
        raise ValueError("must be a date such as 2027-01-31 or a time such as 2027-01-31T18:00:00Z")
    try:
        # Beside the ends of the calendar a zone may lead out of it.
        return read.replace(tzinfo=read.tzinfo or UTC).astimezone(UTC)
    except OverflowError:
        raise ValueError("must be a date within the calendar") from None


def _token(value: SecretStr) -> SecretStr:
    # A header's value, and nothing to be guessed: whoever has it reads every team's rows.
    if not re.fullmatch(r"[!-~]{16,4096}", value.get_secret_value()):
        raise ValueError("must be 16 or more characters without spaces, such as `openssl rand -hex 32` makes")
    return value


Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
ModelName = Annotated[str, StringConstraints(pattern=MODEL_PATTERN)]
Host = Annotated[str, AfterValidator(_host)]
Port = Annotated[
    int,
    BeforeValidator(_port),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 65535}, {"type": "string", "pattern": r"^([0-9]{1,5}|\$\{\w+\})$"}]}
    ),
]
Origin = Annotated[str, AfterValidator(_origin)]
HeaderName = Annotated[str, AfterValidator(_header)]
KeyHash = Annotated[str, BeforeValidator(_hash), WithJsonSchema({"type": "string", "pattern": HASH_PATTERN})]
Token = Annotated[SecretStr, AfterValidator(_token)]
Moment = Annotated[
    datetime,
    BeforeValidator(moment),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].+)?$", "examples": ["2027-01-31"]}),
]


class Server(Section):
    """Where the gateway listens and what it bears."""

    host: Host = "127.0.0.1"
    """The address to listen on. Loopback unless you say otherwise. A change needs a restart."""
    port: Port = 8484
    """The port to listen on; 0 takes any free one. A change needs a restart."""
    admin_token: Token | None = None
    """Whoever shows it as `Authorization: Bearer …` may use `/admin`; without it `/admin` is off."""
    max_body: Size = 32 * 1024 * 1024
    """The largest request body. Above: 413 as soon as length or count shows it."""
    max_bodies: Size = 1024**3
    """Request bodies held at once, all together. Above: 503, before the body is read."""
    max_header: Size = 32 * 1024
    """The largest request head. Above: 431."""
    max_calls: Annotated[Number, Field(ge=1)] = 1000
    """Calls in flight. Above: 503."""
    header_timeout: Annotated[Duration, Field(gt=0)] = 10.0
    """How long a request's head may take to arrive."""
    body_timeout: Annotated[Duration, Field(gt=0)] = 60.0
    """How long a request's body may take to arrive."""
    write_timeout: Annotated[Duration, Field(gt=0)] = 60.0
    """A reader that takes nothing for so long is dropped."""
    keepalive: Duration = 15.0
    """How often a stream without content yet gets a comment, so that nothing between closes it; 0: never."""
    drain: Duration = 30.0
    """How long running calls may go on after SIGTERM."""
    cors: list[Origin] = []
    """Origins whose web pages may call the gateway; `*` is any. None by default."""
    inbound_trace: Literal["trust", "link", "ignore"] | None = None
    """What a caller's traceparent does: `trust` goes on in its trace, `link` begins a new one that points to it, `ignore` forgets it.
    Default: `trust` on loopback, `link` elsewhere."""
    keys_file: Annotated[str, StringConstraints(min_length=1)] = "spangate.keys.yaml"
    """Where `spangate keys` writes virtual keys, beside this file unless the path is absolute. Watched like this file."""


class Target(Section):
    """One place that can answer a model."""

    provider: str
    """A name under `providers`."""
    model: Annotated[ModelName | None, Field(json_schema_extra={"default": None})] = None
    """What the provider calls the model; without it the name that the caller asked for."""


class Model(Section):
    """A name that callers use, exact or with `*`, and who answers it."""

    targets: Annotated[list[Target], Field(min_length=1, max_length=1)]
    """Who answers: for now exactly one."""


class PolicyRule(Section):
    """One policy: a mapping of its kind to its settings."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    @property
    def kind(self) -> str:
        return next(iter(self.model_fields_set))

    @property
    def settings(self) -> BaseModel:
        found: BaseModel = getattr(self, self.kind)
        return found


class Defaults(Section):
    """What holds for every team."""

    policies: list[Any] = []
    """Policies around every team's own: names of lists under `policies`, or policies written here."""


class Key(Section):
    """A virtual key: who may call. `spangate keys new` makes one and writes it to `server.keys_file`; here it is read only."""

    name: Name
    """Its name, unique within the team; seen in usage and logs."""
    hash: KeyHash
    """`sha256:` and the SHA-256 of the whole key in hexadecimal. The key itself is stored nowhere."""
    expires: Moment | None = None
    """From this date (its first moment, UTC) or time on the key is refused. Without it: never."""


class Team(Section):
    """Who calls: a set of keys with the models and policies that hold for them."""

    organisation: Name | None = None
    """The organisation the team belongs to; `organisation` of the file by default."""
    models: list[ModelName] = ["*"]
    """What callers may ask for, exact or with `*`. All by default."""
    policies: list[Any] = []
    """The team's own policies, inside `defaults.policies`: names of lists under `policies`, or policies written here."""
    keys: list[Key] = []
    """The team's virtual keys, beside those in `server.keys_file`."""


class IdentityHeaders(Section):
    """Request headers that say on whose behalf a call is made; the first one present counts."""

    user: list[HeaderName] = ["x-spangate-user"]
    """Headers that name the end user."""
    thread: list[HeaderName] = ["x-spangate-thread"]
    """Headers that name the conversation."""


class Callers(Section):
    """Identity that other tools send along."""

    headers: IdentityHeaders = IdentityHeaders()
    """Which request headers carry it."""


def _server_address(value: SecretStr) -> SecretStr:
    if urlsplit(value.get_secret_value()).scheme not in ("redis", "rediss", "unix"):
        raise ValueError("must be an address such as redis://127.0.0.1:6379/0")  # never the value, which may hold a password
    return value


class State(Section):
    """Where budgets and rate limits are counted. A change needs a restart."""

    backend: Literal["memory", "redis"] = "memory"
    """`memory`: by this gateway alone; `redis`: on a Valkey or Redis server that several gateways share."""
    url: Annotated[SecretStr, AfterValidator(_server_address)] | None = None
    """The server of `redis`: redis://, rediss:// or unix://, with host, port and database."""
    cluster: bool = False
    """Whether that is a cluster, of which this is one node."""
    lease: Annotated[Duration, Field(ge=3)] = 15.0
    """After how long without a sign of life what a gateway held counts as used."""

    @model_validator(mode="after")
    def _complete(self) -> State:
        if (self.backend == "redis") != (self.url is not None):
            raise ValueError("`backend: redis` and `url` belong together")
        return self


class Settings(Section):
    """spangate.yaml."""

    organisation: Name = "default"
    """The organisation of teams that name none."""
    server: Server = Server()
    """Where the gateway listens and what it bears."""
    providers: dict[Name, Any] = {}
    """Who can answer, by a name of your choice."""
    models: dict[ModelName, Model] = {}
    """The names that callers use. Exact names come before patterns, longer patterns before shorter ones; `*` is any other name."""
    policies: dict[Name, list[Any]] = {}
    """Named lists of policies, for `defaults` and teams."""
    defaults: Defaults = Defaults()
    """What holds for every team."""
    teams: dict[Name, Team] = {}
    """Who may call. Without any team the gateway is open to local callers."""
    telemetry: Telemetry = Telemetry()
    """What is told to an OpenTelemetry collector. A change needs a restart."""
    usage: Usage = Usage()
    """Where the row of every call goes. A change needs a restart."""
    prices: list[Price] = []
    """What models cost where the catalog doesn't know, or knows better; the first that fits counts. A change needs a restart."""
    callers: Callers = Callers()
    """Identity that other tools send along."""
    state: State = State()
    """Where budgets and rate limits are counted. A change needs a restart."""
