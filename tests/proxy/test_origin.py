"""A base_url becomes an origin, or a sentence that says what is wrong with it."""

from __future__ import annotations

import pytest

from spangate.proxy.origin import Origin


@pytest.mark.parametrize(
    ("base_url", "parts", "authority"),
    [
        ("https://api.openai.com/v1", ("https", "api.openai.com", 443, "/v1"), b"api.openai.com"),
        ("https://api.openai.com", ("https", "api.openai.com", 443, ""), b"api.openai.com"),
        ("http://localhost:8000/", ("http", "localhost", 8000, ""), b"localhost:8000"),
        ("http://Model.Example:80/V1//", ("http", "model.example", 80, "/V1"), b"model.example"),
        ("https://h:8443/a/b/", ("https", "h", 8443, "/a/b"), b"h:8443"),
        ("http://127.0.0.1:1/v1", ("http", "127.0.0.1", 1, "/v1"), b"127.0.0.1:1"),
        ("http://[::1]:8080/v1", ("http", "::1", 8080, "/v1"), b"[::1]:8080"),
        ("https://[2001:DB8::1]", ("https", "2001:db8::1", 443, ""), b"[2001:db8::1]"),
        ("HTTP://vllm_0.pod/v1", ("http", "vllm_0.pod", 80, "/v1"), b"vllm_0.pod"),
    ],
)
def test_a_base_url(base_url: str, parts: tuple[str, str, int, str], authority: bytes) -> None:
    origin = Origin.parse(base_url)
    assert (origin.scheme, origin.host, origin.port, origin.path) == parts
    assert origin.authority == authority
    assert (origin.ssl is not None) == (origin.scheme == "https")


@pytest.mark.parametrize(
    ("base_url", "says"),
    [
        ("", "http://"),
        ("api.openai.com/v1", "http://"),
        ("//api.openai.com", "http://"),
        ("ftp://host", "http://"),
        ("http:///v1", "http://"),
        ("https://user:secret@host/v1", "no password"),
        ("https://@host/v1", "no password"),
        ("https://host/v1?key=1", "no query"),
        ("https://host/v1?", "no query"),
        ("https://host/v1#x", "no fragment"),
        ("https://host\\@evil/v1", "backslash"),
        ("https://host /v1", "without spaces"),
        ("https://host/v1\n", "without spaces"),
        ("https://ho\tst/v1", "without spaces"),
        ("https://münchen.example/v1", "punycode"),
        ("https://host:0/v1", "port"),
        ("https://host:65536/v1", "port"),
        ("https://host:x/v1", "port"),
        ("https://host:+1/v1", "port"),
        ("https://host:/v1", "port"),
        ("https://ho:st:1/v1", "port"),
        ("https://host:" + "9" * 5000, "port"),
        ("https://[::1/v1", "a host"),
        ("https://[::1]x/v1", "a host"),
        ("https://:80/v1", "a host"),
        ("https://[fe80::1%25eth0]/v1", "IPv6"),
        ("https://[::x]/v1", "IPv6"),
        ("https://-host/v1", "DNS name"),
        ("https://a..b/v1", "DNS name"),
        ("https://" + "a" * 64 + "/v1", "DNS name"),
        ("https://" + "a." * 127 + "com/v1", "DNS name"),
        ("https://ho%73t/v1", "DNS name"),
    ],
)
def test_what_is_no_base_url(base_url: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"base_url") as caught:
        Origin.parse(base_url)
    assert says in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "secret" not in str(caught.value)


def test_origins_of_one_host_share_their_connections() -> None:
    assert Origin.parse("https://host/v1").key == Origin.parse("https://host:443/v2").key
    assert Origin.parse("https://host/v1").key != Origin.parse("http://host:443/v1").key
