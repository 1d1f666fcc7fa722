"""proxy/changes.py: what a reload changed, for the log."""

from __future__ import annotations

from pathlib import Path

from spangate.proxy.changes import differences
from spangate.proxy.config import Config, Kinds, load, parse

KINDS = Kinds()
BASE = """\
providers: {openai: {kind: openai, api_key: "${KEY}", base_url: "https://${HOST}/v1"}}
models: {fast: {targets: [{provider: openai}]}, strong: {targets: [{provider: openai}]}}
teams: {search: {models: [fast]}}
"""


def config_of(text: str, key: str = "CANARY-one", host: str = "CANARY-host") -> Config:
    return parse(text.encode(), "f", environ={"KEY": key, "HOST": host}, kinds=KINDS)


def test_nothing_changed() -> None:
    assert differences(config_of(BASE), config_of(BASE + "# a comment")) == []


def test_each_place_is_a_line() -> None:
    new = BASE.replace("models: [fast]", "models: [fast, strong]") + "server: {drain: 5s}\norganisation: acme\n"
    assert differences(config_of(BASE), config_of(new)) == [
        'organisation: "default" → "acme"',
        "server.drain: 30.0 → 5.0",
        'teams.search.models: ["fast"] → ["fast", "strong"]',
    ]


def test_what_came_and_went_is_named() -> None:
    new = BASE.replace("{search: {models: [fast]}}", "{ops: {}}").replace(", strong: {targets: [{provider: openai}]}", "")
    assert differences(config_of(BASE), config_of(new)) == ["models.strong: removed", "teams.search: removed", "teams.ops: added"]


def test_a_changed_secret_is_a_line_without_it() -> None:
    assert differences(config_of(BASE), config_of(BASE, key="CANARY-two", host="CANARY-other")) == [
        'providers.openai.api_key: "***" → "***"',
        'providers.openai.base_url: "https://${HOST}/v1" → "https://${HOST}/v1"',
    ]


def test_a_hash_is_shown_by_its_beginning() -> None:
    one, two = "a" * 64, "b" * 64
    text = BASE.replace("models: [fast]", 'keys: [{name: ci, hash: "sha256:%s"}]')
    (line,) = differences(config_of(text % one), config_of(text % two))
    assert line == 'teams.search.keys: [{"hash": "sha256:aaaaaaaa…", "name": "ci"}] → [{"hash": "sha256:bbbbbbbb…", "name": "ci"}]'


def test_long_values_are_cut() -> None:
    new = BASE + f"server: {{cors: [{', '.join(f'https://a{n}.example.com' for n in range(50))}]}}"
    (line,) = differences(config_of(BASE), config_of(new))
    assert len(line) < 160


def test_keys_of_the_keys_file_are_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(BASE)
    found = []
    for keys in ("a: 0, b: 1", "b: 2, c: 3"):
        listed = ", ".join(
            f'{{name: {name}, hash: "sha256:{digit * 64}"}}' for name, digit in (pair.split(": ") for pair in keys.split(", "))
        )
        (tmp_path / "spangate.keys.yaml").write_text(f"teams: {{search: [{listed}]}}")
        found.append(load(tmp_path / "f", environ={"KEY": "k", "HOST": "h"}, kinds=KINDS))
    assert differences(*found) == ["key search/a: revoked", "key search/b: changed", "key search/c: added"]
