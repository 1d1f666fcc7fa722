"""proxy/settings.py: what a single value may be."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from spangate.proxy.settings import Callers, Defaults, IdentityHeaders, Key, Model, Server, Settings, State, Target, Team, moment

HASH = "sha256:" + "0" * 64
SECTIONS: list[type[BaseModel]] = [Settings, Server, Target, Model, Defaults, Key, Team, IdentityHeaders, Callers, State]


def told(section: type[BaseModel], **values: Any) -> str:
    """The first complaint about these values, or nothing."""
    try:
        section.model_validate(values)
    except ValidationError as error:
        return error.errors(include_input=False)[0]["msg"].removeprefix("Value error, ")
    return ""


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_is_explained(section: type[BaseModel]) -> None:
    assert section.__doc__
    assert [name for name, field in section.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("section", SECTIONS)
def test_sections_are_frozen_refuse_unknown_keys_and_never_quote_their_input(section: type[BaseModel]) -> None:
    assert section.model_config["frozen"]
    assert section.model_config["extra"] == "forbid"
    assert section.model_config["hide_input_in_errors"]


def test_the_defaults_are_those_of_the_contract() -> None:
    server = Server()
    assert (server.host, server.port, server.keys_file) == ("127.0.0.1", 8484, "spangate.keys.yaml")
    assert (server.max_body, server.max_bodies, server.max_header, server.max_calls) == (32 << 20, 1 << 30, 32 << 10, 1000)
    assert (server.header_timeout, server.body_timeout, server.write_timeout, server.keepalive, server.drain) == (10, 60, 60, 15, 30)
    assert Callers().headers == IdentityHeaders(user=["x-spangate-user"], thread=["x-spangate-thread"])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "::", "localhost", "gateway.example.com", "my_host"])
def test_hosts(host: str) -> None:
    assert told(Server, host=host) == ""


@pytest.mark.parametrize("host", ["", "127.0.0", "127.0.0.256", "1.2.3.4.5", "a b", "http://x", "x:80", "-a", "a..b", "[::1]", "x" * 300])
def test_hosts_that_are_none(host: str) -> None:
    assert told(Server, host=host) == "must be an IP address or a host name"


@pytest.mark.parametrize(("port", "value"), [(0, 0), (65535, 65535), ("8080", 8080)])
def test_ports(port: object, value: int) -> None:
    assert Server.model_validate({"port": port}).port == value


@pytest.mark.parametrize("port", [-1, 65536, "", "http", "99999", True, 80.5, None, [80]])
def test_ports_that_are_none(port: object) -> None:
    assert "must be a port" in told(Server, port=port)


@pytest.mark.parametrize("origin", ["*", "https://app.example.com", "http://localhost:3000", "http://[::1]:3000"])
def test_origins(origin: str) -> None:
    assert told(Server, cors=[origin]) == ""


@pytest.mark.parametrize(
    "origin", ["", "app.example.com", "https://a/", "https://a/b", "ftp://a", "https://u:p@a", "https://a:99999", "https://", "null", "https://[x"]
)  # fmt: skip
def test_origins_that_are_none(origin: str) -> None:
    assert "must be an origin" in told(Server, cors=[origin])


def test_header_names_are_kept_in_lower_case() -> None:
    assert IdentityHeaders(user=["X-OpenWebUI-User-Email"]).user == ["x-openwebui-user-email"]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("", "must be a header name"),
        ("x user", "must be a header name"),
        ("x-user:", "must be a header name"),
        ("ü", "must be a header name"),
        ("Authorization", "must not be a header that carries a secret"),
        ("x-api-key", "must not be a header that carries a secret"),
        ("Cookie", "must not be a header that carries a secret"),
    ],
)
def test_headers_that_may_not_be_identity(header: str, message: str) -> None:
    assert told(IdentityHeaders, user=[header]) == message


@pytest.mark.parametrize(
    "digest", ["", "sha256:", "sha256:…64 hex", "sha256:" + "0" * 63, "sha256:" + "A" * 64, "0" * 64, HASH + "\n", "md5:0", 5, None]
)  # fmt: skip
def test_a_hash_is_sha256_and_64_digits(digest: object) -> None:
    assert told(Key, name="ci", hash=digest) == "must be sha256: and 64 hexadecimal digits in lower case"


def test_a_key_in_the_place_of_its_hash_is_told_without_it() -> None:
    message = told(Key, name="ci", hash="sg-CANARY" + "0" * 60)
    assert message.startswith("is a key, not its hash")
    assert "CANARY" not in message


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2027-01-31", datetime(2027, 1, 31, tzinfo=UTC)),
        ("2027-01-31T18:00:00", datetime(2027, 1, 31, 18, tzinfo=UTC)),
        ("2027-01-31T18:00:00Z", datetime(2027, 1, 31, 18, tzinfo=UTC)),
        ("2027-01-31 18:00:00+02:00", datetime(2027, 1, 31, 16, tzinfo=UTC)),
        (date(2027, 1, 31), datetime(2027, 1, 31, tzinfo=UTC)),
        (datetime(2027, 1, 31, tzinfo=UTC), datetime(2027, 1, 31, tzinfo=UTC)),
    ],
)
def test_moments_are_utc(text: object, at: datetime) -> None:
    assert moment(text) == at
    assert Key.model_validate({"name": "ci", "hash": HASH, "expires": text}).expires == at


@pytest.mark.parametrize("text", ["", "soon", "2027-02-30", "31.01.2027", "30d", 5, True, None, [], "0001-01-01T00:00:00+14:00"])
def test_moments_that_are_none(text: object) -> None:
    with pytest.raises(ValueError, match="must be a date"):
        moment(text)


@given(st.text() | st.datetimes() | st.dates() | st.integers() | st.none())
def test_anything_is_a_moment_or_a_value_error(value: object) -> None:
    with suppress(ValueError):
        assert moment(value).tzinfo is not None


@pytest.mark.parametrize("name", ["", "-a", ".a", "a/b", "a b", "a\n", "ü", "x" * 65])
def test_names_of_teams_and_keys_fit_into_paths_and_commands(name: str) -> None:
    assert "pattern" in told(Key, name=name, hash=HASH)


@pytest.mark.parametrize(("setting", "value"), [("max_calls", 0), ("header_timeout", 0), ("body_timeout", "0s"), ("write_timeout", 0)])
def test_limits_that_would_stop_everything_are_refused(setting: str, value: object) -> None:
    assert "greater than" in told(Server, **{setting: value})


@pytest.mark.parametrize("token", ["x" * 16, "0123456789abcdef" * 4, "!" * 4096])
def test_an_admin_token(token: str) -> None:
    assert told(Server, admin_token=token) == ""
    assert token not in repr(Server(admin_token=token))  # type: ignore[arg-type]


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "with spaces in it, too many", "é" * 20, "x" * 16 + "\n", "x" * 5000])
def test_an_admin_token_that_is_none(token: str) -> None:
    assert told(Server, admin_token=token).startswith("must be 16 or more characters without spaces")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, ""),
        ({"backend": "redis", "url": "redis://:secret@127.0.0.1:6379/0", "cluster": True, "lease": "5s"}, ""),
        ({"backend": "redis", "url": "unix:///run/valkey.sock"}, ""),
        ({"backend": "redis"}, "`backend: redis` and `url` belong together"),
        ({"url": "redis://127.0.0.1"}, "`backend: redis` and `url` belong together"),
        ({"backend": "redis", "url": "http://:secret@127.0.0.1"}, "must be an address such as redis://127.0.0.1:6379/0"),
        ({"lease": "1s"}, "Input should be greater than or equal to 3"),
    ],
)
def test_where_counters_are_kept(said: dict[str, Any], words: str) -> None:
    assert told(State, **said) == words
    if not words:
        assert "secret" not in repr(State.model_validate(said))
