"""proxy/config.py: the file as a checked configuration, or every mistake in it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from spangate.policies.access import Access
from spangate.policies.time_limit import TimeLimit
from spangate.proxy import keys_file
from spangate.proxy.config import Config, ConfigMistakes, Kinds, again, document_at, from_environment, load, parse

KINDS = Kinds()
EXAMPLE = Path(__file__).parents[2] / "spangate.example.yaml"
HASH, OTHER = f"sha256:{'0' * 64}", f"sha256:{'1' * 64}"
ENVIRON = {"OPENAI_API_KEY": "provider-CANARY-key"}

GOOD = """\
providers:
  openai: {kind: openai, api_key: "${OPENAI_API_KEY}"}
  script: {kind: scripted}
models:
  fast: {targets: [{provider: openai, model: gpt-5-mini}], time_limit: {first: 90s}}
  gpt-*: {targets: [{provider: openai}]}
policies:
  standard: [access: {models: [fast, gpt-*]}]
defaults: {policies: [standard]}
teams:
  search:
    models: [fast]
    policies: [standard, access: {models: [fast]}]
    keys: [{name: ci, hash: "HASH", expires: 2027-01-31}]
""".replace("HASH", HASH)


def config_of(text: str, **environ: str) -> Config:
    return parse(text.encode(), "f", environ=ENVIRON | environ, kinds=KINDS)


def mistakes(text: str | bytes, **environ: str) -> list[str]:
    """All that is wrong with a text, as `line:column: path: message`."""
    content = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(ConfigMistakes) as raised:
        parse(content, "f", environ=ENVIRON | environ, kinds=KINDS)
    return [str(mistake).removeprefix("f:") for mistake in raised.value.mistakes]


def changed(old: str, new: str) -> list[str]:
    """The mistakes of the good file after one change."""
    assert old in GOOD
    return mistakes(GOOD.replace(old, new))


def test_a_good_file() -> None:
    config = config_of(GOOD)
    assert config.server.port == 8484
    assert config.settings.providers["openai"].api_key == SecretStr("provider-CANARY-key")
    assert config.settings.models["fast"].targets[0].model == "gpt-5-mini"
    assert config.settings.models["gpt-*"].targets[0].model is None
    assert [(held.team, held.key.name, held.key.hash) for held in config.keys] == [("search", "ci", HASH)]
    assert config.warnings == ()


def allowed(config: Config, team: str | None) -> list[tuple[str, ...]]:
    """The models of each rule."""
    return [rule.models for _, rule in config.policies_of(team) if isinstance(rule, Access)]


def test_a_teams_policies_are_the_defaults_around_its_own_and_no_list_counts_twice() -> None:
    config = config_of(GOOD)
    assert allowed(config, "search") == [("fast", "gpt-*"), ("fast",)]
    assert allowed(config, None) == [("fast", "gpt-*")]


def test_what_is_set_under_a_model() -> None:
    config = config_of(GOOD)
    assert config.parts_of("fast") == [("time_limit", TimeLimit(first=90.0))]
    assert config.parts_of("gpt-*") == [("time_limit", TimeLimit())]


def test_a_team_belongs_to_its_organisation_or_the_files() -> None:
    config = config_of(GOOD.replace("search:\n", "search:\n    organisation: acme\n", 1) + "  other: {}\norganisation: main\n")
    assert [config.organisation_of(team) for team in ("search", "other", None)] == ["acme", "main", "main"]


def test_every_mistake_is_told_at_once_and_in_its_place() -> None:
    text = """\
sever: {}
server: {prt: 1, port: 99999, max_body: 3XB, drain: -5, cors: [foo]}
providers:
  openai: {kind: openai, api_key: "${NOPE}", api_kye: x}
  a: {kind: opnai}
  b: {x: 1}
  c: {kind: openai, api_key: k, base_url: "https://me:CANARY@host/v1"}
  d: {kind: openai, api_key: "", flavor: olama}
models:
  fast: {targets: [{provider: opena, model: 5}, {provider: c}], time_limit: {conect: 5s}, fallback: [strong]}
  b d: {targets: []}
policies: {standard: [acess: {}, access: {modls: 1}, {}, {time_limit: {}}]}
defaults: {policies: [standrd]}
teams:
  search:
    models: [fsat, gpt-*]
    policies: [standard, 4]
    keys: [{name: ci, hash: "sha256:x", expires: soon}, {name: ci, hash: x}, {hash: y}]
callers: {headers: {user: [x user], tread: [a]}}
"""
    assert mistakes(text) == [
        '1:1: sever: unknown key; did you mean "server"?',
        '2:10: server.prt: unknown key; did you mean "port"?',
        "2:24: server.port: must be a port, 0 to 65535 (0: any free one)",
        "2:41: server.max_body: must be a size such as 512KiB, 32MiB or 1GB: units are kB MB GB KiB MiB GiB",
        "2:53: server.drain: must be a time such as 250ms, 5s, 10m, 1h or 30d",
        "2:64: server.cors[0]: must be an origin such as https://app.example.com, without a path, or *",
        "4:35: providers.openai.api_key: the environment variable NOPE is not set",
        '4:46: providers.openai.api_kye: unknown key; did you mean "api_key"?',
        '5:13: providers.a.kind: "opnai" is not one of openai, scripted; did you mean "openai"?',
        "6:6: providers.b: `kind` is missing",
        "7:43: providers.c.base_url: must not hold a user or password: they would end up in logs; use api_key",
        "8:30: providers.d.api_key: is empty",
        '8:42: providers.d.flavor: "olama" is not one of openai, ollama, vllm, llamacpp, mistral, compatible; did you mean "ollama"?',
        "10:19: models.fast.targets: a model has exactly one target for now, not 2",
        '10:31: models.fast.targets[0].provider: no provider "opena"; did you mean "openai"?',
        "10:78: models.fast.time_limit.conect: unknown key; did you mean \"connect\"?",
        "10:91: models.fast.fallback: unknown key; known here: targets, time_limit",
        '11:3: models."b d": a model\'s name has no spaces and at most 200 characters, all of ASCII',
        '11:18: models."b d".targets: is empty: a model needs a target, as in [{provider: openai}]',
        '12:23: policies.standard[0].acess: unknown key; did you mean "access"?',
        '12:43: policies.standard[1].access.modls: unknown key; did you mean "models"?',
        "12:54: policies.standard[2]: must have exactly one kind of policy, as in {access: {…}}; write several as several entries",
        "12:59: policies.standard[3].time_limit: is set under a model, as in fast: {time_limit: {…}}, and not in a list of policies",
        '13:23: defaults.policies[0]: no list of policies "standrd"; did you mean "standard"?',
        '16:14: teams.search.models[0]: no model "fsat"; did you mean "fast"?',
        '16:20: teams.search.models[1]: no model "gpt-*"; there are: b d, fast',
        "17:26: teams.search.policies[1]: must be the name of a list of policies, or a policy such as {access: {…}}",
        "18:29: teams.search.keys[0].hash: must be sha256: and 64 hexadecimal digits in lower case",
        "18:50: teams.search.keys[0].expires: must be a date such as 2027-01-31 or a time such as 2027-01-31T18:00:00Z",
        '18:64: teams.search.keys[1].name: this team has a key "ci" already',
        "18:74: teams.search.keys[1].hash: must be sha256: and 64 hexadecimal digits in lower case",
        "18:78: teams.search.keys[2].name: is missing",
        "18:85: teams.search.keys[2].hash: must be sha256: and 64 hexadecimal digits in lower case",
        "19:28: callers.headers.user[0]: must be a header name",
        '19:37: callers.headers.tread: unknown key; did you mean "thread"?',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["1:1: models: no models", "1:1: providers: no providers"]),
        ("# only a comment\n", ["1:1: models: no models", "1:1: providers: no providers"]),
        ("- a\n", ["1:1: must be a mapping, with keys such as providers and models"]),
        ("just text", ["1:1: must be a mapping, with keys such as providers and models"]),
        ("providers: [\n", ["2:1: is not YAML: "]),
        (b"providers: {a: \xff}\n", ["1:16: is not UTF-8 (byte 0xff)"]),
        (b"a: 1\nb: \xc3(", ["2:4: is not UTF-8 (byte 0xc3)"]),
        ("providers: [a]\nmodels:\n", ["1:12: providers: must be a mapping", "2:8: models: no models: name at least one"]),
        ("teams:\nserver:\n" + GOOD[: GOOD.index("policies")], ["1:7: teams: is empty; it must be", "2:8: server: is empty; it must be"]),
        ("provider: {}\nmodles: {}\n", ["1:1: provider: unknown key; did you mean", "2:1: modles: unknown key; did you mean"]),
        ("providers: {s: {kind: scripted}}", ['1:1: models: no models: name at least one, as in "*": {targets: [{provider: s}]}']),
    ],
)
def test_files_that_say_nothing(text: str | bytes, told: list[str]) -> None:
    found = mistakes(text)
    assert len(found) == len(told)
    assert all(mistake.startswith(start) for mistake, start in zip(found, told, strict=True)), found


def test_a_byte_order_mark_is_no_mistake() -> None:
    assert parse(b"\xef\xbb\xbf" + GOOD.encode(), "f", environ=ENVIRON, kinds=KINDS).settings == config_of(GOOD).settings


def test_a_key_belongs_to_one_team() -> None:
    text = f'{GOOD}  other: {{keys: [{{name: ci, hash: "{HASH}"}}]}}\n'
    assert mistakes(text) == ["15:35: teams.other.keys[0].hash: is the hash of search/ci too: a key belongs to one team"]


@pytest.mark.parametrize("asked", ["fast", "gpt-5", "gpt-*", "*", "*-mini", "f*"])
def test_a_team_may_name_what_some_model_matches(asked: str) -> None:
    config_of(GOOD.replace("models: [fast]\n", f'models: ["{asked}"]\n'))


@pytest.mark.parametrize(
    ("asked", "hint"),
    [("fats", '; did you mean "fast"?'), ("claude-*", "; there are: fast, gpt-*"), ("FAST", "; there are: fast, gpt-*")],
)
def test_a_team_may_not_name_what_no_model_matches(asked: str, hint: str) -> None:
    assert changed("models: [fast]\n", f'models: ["{asked}"]\n') == [f'12:14: teams.search.models[0]: no model "{asked}"{hint}']


@pytest.mark.parametrize(
    "address", ["x", "ftp://a/v1", "https://", "//a/v1", "https://a:0/v1", "https://a:x/v1", "https://a b/v1", "https://[a/v1", "https://a\\b"]
)  # fmt: skip
def test_addresses_that_are_none(address: str) -> None:
    (told,) = changed('api_key: "${OPENAI_API_KEY}"', f"api_key: k, base_url: '{address}'")
    assert told == "2:48: providers.openai.base_url: must be an address such as https://api.openai.com/v1"


@pytest.mark.parametrize("address", ["https://a/v1?key=CANARY", "https://a/v1#x", "https://a/v1?"])
def test_an_address_has_no_query(address: str) -> None:
    assert changed('api_key: "${OPENAI_API_KEY}"', f"api_key: k, base_url: '{address}'") == [
        "2:48: providers.openai.base_url: must not have a query or a fragment"
    ]


def test_the_vendor_wants_a_key_and_a_local_server_none() -> None:
    (told,) = changed(', api_key: "${OPENAI_API_KEY}"', "")
    assert told.startswith("2:11: providers.openai: ")
    assert "api_key" in told
    config_of(GOOD.replace(', api_key: "${OPENAI_API_KEY}"', ", flavor: ollama"))


@pytest.mark.parametrize(
    ("environ", "state"), [({}, "is not set"), ({"OPENAI_API_KEY": ""}, "is empty"), ({"OPENAI_API_KEY": " \n"}, "is empty")]
)
def test_a_secret_that_is_not_there_is_named_and_nothing_else_is_told_of_it(environ: dict[str, str], state: str) -> None:
    with pytest.raises(ConfigMistakes) as raised:
        parse(GOOD.encode(), "f", environ=environ, kinds=KINDS)
    assert str(raised.value) == f"f:2:35: providers.openai.api_key: the environment variable OPENAI_API_KEY {state}"


def test_an_address_comes_from_the_environment() -> None:
    text = 'server: {port: "${PORT}"}\n' + GOOD.replace('"${OPENAI_API_KEY}"', 'k, base_url: "http://${HOST}:11434/v1"')
    config = config_of(text, PORT="9000", HOST="ollama")
    assert config.server.port == 9000
    assert config.settings.providers["openai"].base_url == "http://ollama:11434/v1"


@pytest.mark.parametrize(
    "place",
    [
        "openai: {kind: HERE, api_key: k}",
        "openai: {kind: openai, api_key: [HERE]}",
        "openai: {kind: openai, api_key: k, flavor: HERE}",
        "openai: {kind: openai, api_key: k, base_url: HERE}",
        "openai: {kind: openai, api_key: k, base_url: 'https://u:HERE@x'}",
        "openai: {kind: scripted, script: HERE}",
        "openai: {kind: openai, api_key: k}\nserver: {port: HERE, max_body: HERE, drain: HERE, host: HERE x, cors: [HERE]}",
        "openai: {kind: openai, api_key: k}\norganisation: HERE x",
        "openai: {kind: openai, api_key: k}\nteams: {a: {models: [HERE], policies: [HERE], keys: [{name: HERE x, hash: HERE}]}}",
        "openai: {kind: openai, api_key: k}\ndefaults: {policies: [HERE]}\ncallers: {headers: {user: [HERE x]}}",
        "openai: {kind: openai, api_key: k}\npolicies: {a: [HERE]}\nmodels: {fast: {targets: [{provider: HERE}]}, '*': HERE}",
        "openai: {kind: openai, api_key: k}\nmodels: HERE",
    ],
)
@pytest.mark.parametrize("secret", ['"${SECRET}"', "sk-live-CANARY123456789", f"sg-CANARY{'0' * 50}"])
def test_no_message_shows_a_secret_wherever_it_was_put(place: str, secret: str) -> None:
    text = "providers:\n  " + place.replace("'https://u:HERE@x'", "HERE").replace("HERE x", "HERE").replace("HERE", secret)
    with pytest.raises(ConfigMistakes) as raised:
        parse(text.encode(), "f", environ={"SECRET": "CANARY-1 of/environment"}, kinds=KINDS)
    assert "CANARY" not in str(raised.value)
    assert "CANARY" not in repr(raised.value)
    assert raised.value.__context__ is None or "CANARY" not in repr(raised.value.__context__)


@pytest.mark.fault("CFG-05")
def test_no_view_of_a_good_configuration_shows_a_secret() -> None:
    config = config_of(GOOD)
    for view in (repr(config), str(config.settings), config.settings.model_dump_json(), str(config.settings.model_dump()), config.version):
        assert "CANARY" not in view


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigMistakes, match=r"spangate\.yaml: there is no such file: `spangate init` writes one"):
        load(tmp_path / "spangate.yaml", environ={}, kinds=KINDS)
    with pytest.raises(ConfigMistakes, match="can't be read: Is a directory"):
        load(tmp_path, environ={}, kinds=KINDS)


def test_a_file_far_too_large_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "spangate.yaml").write_bytes(b"#" * (5 << 20))
    with pytest.raises(ConfigMistakes, match="is larger than 4 MiB"):
        load(tmp_path / "spangate.yaml", environ={}, kinds=KINDS)


def write(folder: Path, text: str, keys: str = "") -> Path:
    (folder / "spangate.yaml").write_text(text)
    if keys:
        (folder / "spangate.keys.yaml").write_text(keys)
        (folder / "spangate.keys.yaml").chmod(0o600)
    return folder / "spangate.yaml"


def test_keys_of_the_keys_file_count_like_those_of_the_configuration(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, f"teams: {{search: [{{name: laptop, hash: '{OTHER}'}}]}}")
    config = load(path, environ=ENVIRON, kinds=KINDS)
    assert [(held.team, held.key.name) for held in config.keys] == [("search", "ci"), ("search", "laptop")]
    assert config.keys_path == tmp_path / "spangate.keys.yaml"
    assert config.folder == tmp_path


def test_mistakes_of_both_files_are_told_at_once(tmp_path: Path) -> None:
    keys = f"teams:\n  search:\n    - {{name: ci, hash: '{OTHER}'}}\n    - {{name: x, hash: '{HASH}'}}\n    - {{nam: y, hash: z}}\n"
    path = write(tmp_path, GOOD.replace("defaults:", "default:"), keys)
    with pytest.raises(ConfigMistakes) as raised:
        load(path, environ=ENVIRON, kinds=KINDS)
    places = [(Path(m.file).name, m.line, m.path) for m in raised.value.mistakes]
    assert places == [
        ("spangate.keys.yaml", 5, "teams.search[2].name"),
        ("spangate.keys.yaml", 5, "teams.search[2].nam"),
        ("spangate.keys.yaml", 5, "teams.search[2].hash"),
        ("spangate.yaml", 9, "default"),
    ]
    path = write(tmp_path, GOOD, keys.replace("    - {nam: y, hash: z}\n", ""))
    with pytest.raises(ConfigMistakes) as raised:
        load(path, environ=ENVIRON, kinds=KINDS)
    assert [(m.line, m.path, m.message.split(" in ")[0]) for m in raised.value.mistakes] == [
        (3, "teams.search[0].name", 'this team has a key "ci"'),
        (4, "teams.search[1].hash", "is the hash of search/ci"),
    ]


def test_doubts_are_warnings(tmp_path: Path) -> None:
    path = write(tmp_path, f"{GOOD}  empty: {{}}\n", f"teams: {{gone: [{{name: a, hash: '{OTHER}'}}]}}")
    (tmp_path / "spangate.keys.yaml").chmod(0o644)
    config = load(path, environ=ENVIRON, kinds=KINDS)
    told = [str(warning).removeprefix(f"{tmp_path}/") for warning in config.warnings]
    assert told == [
        f"spangate.keys.yaml: warning: others may read this file (mode 0644): chmod 600 {tmp_path}/spangate.keys.yaml",
        "spangate.yaml:15:3: warning: teams.empty: has no key, so that nobody can call as it: spangate keys new empty",
        "spangate.keys.yaml:1:9: warning: teams.gone: no such team in the configuration: its keys are refused",
    ]


def test_the_version_changes_with_either_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    versions = [load(path, environ=ENVIRON, kinds=KINDS).version]
    versions.append(load(path, environ=ENVIRON, kinds=KINDS).version)
    write(tmp_path, GOOD, f"teams: {{search: [{{name: a, hash: '{OTHER}'}}]}}")
    versions.append(load(path, environ=ENVIRON, kinds=KINDS).version)
    write(tmp_path, GOOD + "# a comment\n")
    versions.append(load(path, environ=ENVIRON, kinds=KINDS).version)
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3
    assert all(len(version) == 12 for version in versions)


def test_what_only_a_restart_brings() -> None:
    old = config_of(GOOD)
    assert old.needs_restart(config_of("server: {drain: 1s}\n" + GOOD)) == []
    assert old.needs_restart(config_of("server: {port: 1, host: '::1'}\n" + GOOD)) == ["server.host", "server.port"]


def test_an_empty_section_telemetry_is_one_that_only_a_restart_brings() -> None:
    old, new = config_of(GOOD), config_of("telemetry: {}\n" + GOOD)
    assert old.needs_restart(new) == new.needs_restart(old) == ["telemetry"]
    assert new.needs_restart(new) == []


def test_without_a_file_every_name_goes_to_openai() -> None:
    config = from_environment(ENVIRON, KINDS)
    assert list(config.settings.models) == ["*"]
    assert config.settings.models["*"].targets[0].provider == "openai"
    assert config.settings.providers["openai"].api_key == SecretStr("provider-CANARY-key")
    assert (config.settings.teams, config.keys, config.path, config.keys_path) == ({}, (), None, None)
    with pytest.raises(ConfigMistakes, match="the environment variable OPENAI_API_KEY is not set"):
        from_environment({}, KINDS)


def test_a_pipe_is_read_once_and_its_keys_ever_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ours, theirs = os.pipe()
    os.write(theirs, GOOD.encode())
    os.close(theirs)
    config = load(f"/dev/fd/{ours}", environ=ENVIRON, kinds=KINDS)
    assert (config.folder, config.keys_path) == (Path(), Path("spangate.keys.yaml"))
    assert again(config, environ=ENVIRON, kinds=KINDS) == config
    keys_file.new(Path("spangate.keys.yaml"), "search", "laptop", now=datetime.now(UTC))
    later = again(again(config, environ=ENVIRON, kinds=KINDS), environ=ENVIRON, kinds=KINDS)
    assert [held.key.name for held in later.keys] == ["ci", "laptop"]
    os.close(ours)


def test_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "spangate.yaml"
    path.write_text(GOOD)
    config = load(path, environ=ENVIRON, kinds=KINDS)
    path.write_text(GOOD + "organisation: acme\n")
    assert again(config, environ=ENVIRON, kinds=KINDS).settings.organisation == "acme"


@pytest.mark.parametrize("read", [load, lambda path, environ: document_at(Path(path), environ)], ids=["whole", "as it is written"])
def test_what_never_ends_is_not_read(read: Any, tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_bytes(b"# " * 2**21 + b"#")
    for path, told in (("/dev/zero", "neither a file nor a pipe"), (tmp_path / "large.yaml", "is larger than 4 MiB")):
        with pytest.raises(ConfigMistakes, match=told):
            read(path, environ=ENVIRON)


def test_the_example_loads() -> None:
    config = load(EXAMPLE, environ=ENVIRON, kinds=KINDS)
    assert config.warnings == ()
    assert [kind for kind, _ in config.policies_of("search")] == ["access", "access", "rate_limit", "budget", "access", "budget"]


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["openai", "*", "5s", "${X}", "fast"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["server", "providers", "models", "teams", "policies", "defaults", "callers", "kind", "targets", "provider", "keys",
                         "hash", "name", "access", "time_limit", "headers", "user", "script", "openai", "a", "<name>", "[key]"])
        | st.text(max_size=5),
        inner,
        max_size=4,
    ),
    max_leaves=30,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["server", "providers", "models", "teams", "policies", "defaults", "callers"]), TREES) | TREES)
def test_any_tree_is_a_configuration_or_a_list_of_mistakes(tree: Any) -> None:
    text, told = yaml.safe_dump(tree, allow_unicode=True), ""
    try:
        parse(text.encode("utf-8", "surrogatepass"), "f", environ={"X": "CANARY-X"}, kinds=KINDS)
    except ConfigMistakes as error:
        told = str(error)
    assert "CANARY" not in told


@given(st.binary(max_size=100) | st.text(alphabet="{}[]:,&*-?|>'\"%@`!#$ \nabc", max_size=80).map(str.encode))
def test_any_bytes_are_a_configuration_or_a_list_of_mistakes(content: bytes) -> None:
    with pytest.raises(ConfigMistakes):
        parse(content, "f", environ={}, kinds=KINDS)


def test_a_missing_script_is_told_beside_other_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "spangate.yaml"
    path.write_text("providers:\n  s: {kind: scripted, script: gone.yaml}\nserver: {port: many}\n")
    with pytest.raises(ConfigMistakes) as caught:
        load(path, environ={}, kinds=KINDS)
    told = {mistake.path: (mistake.line, mistake.column, mistake.message) for mistake in caught.value.mistakes}
    assert set(told) == {"server.port", "models", "providers.s.script"}
    assert told["providers.s.script"][:2] == (2, 31)
    assert "gone.yaml" in told["providers.s.script"][2]
