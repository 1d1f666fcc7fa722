"""proxy/callers.py: a key and its caller. What a request through the whole gateway meets is in tests/journeys/test_auth.py."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from multidict import CIMultiDict

from spangate.call.call import Caller
from spangate.call.errors import CallerFault, Refused
from spangate.call.notes import Notes
from spangate.proxy import config
from spangate.proxy.callers import MAX_KEY, Callers, Holder, check_keys, loopback_name, presented_key, valid_keys

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
ANN, BOB = Caller("org", "search", "ann"), Caller("org", "search", "bob")


def headers(*pairs: tuple[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(pairs)


def bearer(key: str) -> CIMultiDict[str]:
    return headers(("Authorization", f"Bearer {key}"))


def holder(caller: Caller, key: str, expires: datetime | None = None) -> Holder:
    return Holder(caller, hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest(), expires)


def callers(*holders: Holder, teams: bool = True, everywhere: bool = False, now: datetime = NOON) -> Callers:
    return Callers(holders, teams=teams, everywhere=everywhere, now=lambda: int(now.timestamp() * 1e9))


def test_a_key_is_its_holder_and_no_other() -> None:
    known = callers(holder(ANN, "sg-a"), holder(BOB, "sg-b"))
    assert known.who(bearer("sg-a"), has_body=True) == ANN
    assert known.who(headers(("x-api-key", "sg-b")), has_body=False) == BOB
    for key in ("sg-", "sg-ab", "sg-A", "", "sg-a\udcff"):
        with pytest.raises(Refused) as refused:
            known.who(bearer(key), has_body=True)
        assert refused.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (headers(), {"reason": "missing"}),
        (bearer("sg-none"), {"reason": "unknown"}),
        (bearer("sg-old"), {"reason": "expired", "team": BOB.team, "name": BOB.key}),
    ],
)
def test_why_a_key_is_refused_is_told_to_notes_alone(shown: CIMultiDict[str], why: dict[str, str]) -> None:
    known, notes = callers(holder(ANN, "sg-a"), holder(BOB, "sg-old", NOON)), Notes()
    with pytest.raises(Refused) as refused:
        known.who(shown, has_body=True, notes=notes)
    assert [(note.name, note.figures) for note in notes] == [("key.refused", why)]
    assert refused.value.message == "This needs a valid API key: send it as 'Authorization: Bearer sg-…'."
    assert (refused.value.detail, refused.value.facts) == ("", {})


def test_a_key_of_bytes_that_are_no_text_is_a_key() -> None:
    assert callers(holder(ANN, "sg-\udcff")).who(bearer("sg-\udcff"), has_body=False) == ANN


def test_a_key_ends_at_its_moment() -> None:
    second = timedelta(seconds=1)
    for now, valid in ((NOON - second, True), (NOON, False), (NOON + second, False)):
        known = callers(holder(ANN, "sg-a", NOON), now=now)
        if valid:
            assert known.who(bearer("sg-a"), has_body=False) == ANN
        else:
            with pytest.raises(Refused):
                known.who(bearer("sg-a"), has_body=False)


def test_a_caller_finds_its_own_record() -> None:
    held = holder(ANN, "sg-a", NOON)
    assert callers(holder(BOB, "sg-b"), held).holder(ANN) == held
    assert callers(held).holder(BOB) is None


def test_a_gateway_whose_teams_have_no_key_lets_nobody_in() -> None:
    with pytest.raises(Refused):
        callers().who(bearer("sg-a"), has_body=False)


def test_an_open_gateway_answers_what_is_local() -> None:
    json = ("Content-Type", "application/json")
    assert callers(teams=False).who(headers(("Host", "localhost:8484"), json), has_body=True) == Caller()
    assert callers(teams=False).who(headers(("Host", "127.0.0.1")), has_body=False) == Caller()
    for pairs in (
        [("Host", "evil.example"), json],
        [json],
        [("Host", "localhost")],
        [("Host", "localhost"), ("Content-Type", "text/plain")],
    ):
        with pytest.raises(Refused):
            callers(teams=False).who(headers(*pairs), has_body=True)
    assert callers(teams=False, everywhere=True).who(headers(("Host", "evil.example")), has_body=True) == Caller()


def test_a_request_shows_one_key() -> None:
    assert presented_key(headers(("authorization", "BEARER  k "), ("Api-Key", "k"), ("x-api-key", " k"))) == "k"
    assert presented_key(headers(("Authorization", "Basic abc"), ("api-key", "k"))) == "k"
    assert presented_key(headers(("Authorization", "k"))) == ""
    assert presented_key(headers()) == ""
    assert presented_key(bearer("k" * (MAX_KEY + 1))) == ""
    for pairs in ([("api-key", "a"), ("x-api-key", "b")], [("Authorization", "Bearer a"), ("Authorization", "Bearer b")]):
        with pytest.raises(CallerFault, match="more than one API key"):
            presented_key(headers(*pairs))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "a.localhost:80", "127.0.0.1", "127.9.9.9:65535", "[::1]", "[::1]:8484"])
def test_names_of_loopback(host: str) -> None:
    assert loopback_name(host)


ELSEWHERE = ["", ":80", "localhost.", "localhostx", "localhost:80:80", "localhost:8x", "127.0.0.1.nip.io", "0.0.0.0", "10.0.0.1"]
ELSEWHERE += ["[fe80::1%25lo]", "localhost/", "localhost@evil", "evil@localhost", "[::1", "[::1]80", "[::]", "::1x", "127.1", "localhost:²"]


@pytest.mark.parametrize("host", ELSEWHERE)
def test_names_of_elsewhere(host: str) -> None:
    assert not loopback_name(host)


def configured(*expire: str) -> config.Config:
    keys = ", ".join(f"{{name: k{n}, hash: 'sha256:{n:064}'{each and f', expires: {each}'}}}" for n, each in enumerate(expire))
    text = f"providers: {{s: {{kind: scripted}}}}\nmodels: {{m: {{targets: [{{provider: s}}]}}}}\nteams: {{search: {{keys: [{keys}]}}}}\n"
    return config.parse(text.encode(), "spangate.yaml", environ={}, kinds=config.Kinds())


def test_a_key_that_has_expired_is_none() -> None:
    some = configured("2026-11-30T11:59:59Z", "2026-11-30T12:00:01Z", "")
    assert [held.key.name for held in valid_keys(some, NOON)] == ["k1", "k2"]
    check_keys(some, NOON)
    with pytest.raises(ValueError, match="every key has expired, so nobody could call: spangate keys new search"):
        check_keys(configured("2026-11-30T11:59:59Z"), NOON)
    with pytest.raises(ValueError, match="no team has a key, so nobody could call: spangate keys new search"):
        check_keys(configured(), NOON)
    check_keys(config.from_environment({"OPENAI_API_KEY": "sk-x"}), NOON)
