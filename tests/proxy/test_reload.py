"""proxy/reload.py: the configuration follows its files, and a bad file never replaces a good one."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from spangate.proxy import keys_file
from spangate.proxy.config import Config, Kinds, again, from_environment, load
from spangate.proxy.mistakes import ConfigMistakes, Mistake
from spangate.proxy.reload import Reload

from gateway import until

KINDS = Kinds()
GOOD = "providers: {s: {kind: scripted}}\nmodels: {fast: {targets: [{provider: s}]}}\nteams: {search: {}}\n"
BAD = GOOD.replace("models", "modles")


class Gateway:
    """What a gateway does with a reload: remembers."""

    def __init__(self, path: Path, environ: dict[str, str]) -> None:
        self.path = path
        self.environ = environ
        self.loads = 0
        self.applied: list[Config] = []
        self.refusals: list[list[str]] = []
        self.rekeyed: list[Config] = []
        self.fault = ""
        first = load(path, environ=environ, kinds=KINDS)
        self.reload = Reload(first, load=self.load, apply=self.apply, refused=self.refused, rekey=self.rekeyed.append)

    def load(self) -> Config:
        self.loads += 1
        return again(self.reload.config, environ=self.environ, kinds=KINDS)

    def apply(self, config: Config) -> None:
        if self.fault:
            raise ConfigMistakes([Mistake("spangate.yaml", 0, 0, "providers", self.fault)])
        self.applied.append(config)

    def refused(self, mistakes: Sequence[Mistake]) -> None:
        self.refusals.append([mistake.message for mistake in mistakes])

    async def until(self, *, applied: int = 0, refused: int = 0, within: float = 2.0) -> None:
        """Wait for so many in all; a change takes effect within 2 s."""
        began = monotonic()
        while (len(self.applied), len(self.refusals)) != (applied, refused):
            assert monotonic() - began < within, (len(self.applied), self.refusals)
            await asyncio.sleep(0.01)

    async def quiet(self, seconds: float = 0.9) -> None:
        """Nothing happens for longer than a look takes."""
        before = (len(self.applied), len(self.refusals))
        await asyncio.sleep(seconds)
        assert (len(self.applied), len(self.refusals)) == before


@asynccontextmanager
async def watching(folder: Path, text: str = GOOD, *, environ: dict[str, str] | None = None) -> AsyncIterator[Gateway]:
    path = folder / "spangate.yaml"
    if not path.exists():
        path.write_text(text)
    gateway = Gateway(path, environ if environ is not None else {})
    gateway.reload.start()
    try:
        await asyncio.sleep(0.15)
        yield gateway
    finally:
        await gateway.reload.stop()


async def test_a_change_is_applied(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:
        gateway.path.write_text(GOOD + "organisation: acme\n")
        await gateway.until(applied=1)
        assert gateway.applied[0].settings.organisation == "acme"
        assert gateway.reload.config is gateway.applied[0]


async def test_nothing_is_applied_where_nothing_changed(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:
        gateway.path.touch()
        (tmp_path / "other.yaml").write_text("x")
        gateway.path.write_text(GOOD)
        await gateway.quiet()
        assert gateway.applied == []


async def test_a_file_that_an_editor_renames_into_place_is_seen(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:
        for count in (1, 2):
            (tmp_path / "new").write_text(f"{GOOD}organisation: a{count}\n")
            (tmp_path / "new").rename(gateway.path)
            await gateway.until(applied=count)


async def test_the_link_that_kubernetes_swaps_is_seen(tmp_path: Path) -> None:
    for name, text in (("..1", GOOD), ("..2", GOOD + "organisation: acme\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spangate.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "spangate.yaml").symlink_to("..data/spangate.yaml")
    async with watching(tmp_path) as gateway:
        (tmp_path / "..data_tmp").symlink_to("..2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        await gateway.until(applied=1)
        shutil.rmtree(tmp_path / "..1")
        await gateway.quiet()


async def test_a_folder_that_is_replaced_is_seen(tmp_path: Path) -> None:
    for name, text in (("one", GOOD), ("two", GOOD + "organisation: acme\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spangate.yaml").write_text(text)
    async with watching(tmp_path / "one") as gateway:
        (tmp_path / "one").rename(tmp_path / "old")
        (tmp_path / "two").rename(tmp_path / "one")
        await gateway.until(applied=1)


async def test_a_new_key_counts_within_a_second_and_so_does_its_end(tmp_path: Path) -> None:
    keys = tmp_path / "spangate.keys.yaml"
    async with watching(tmp_path) as gateway:
        keys_file.new(keys, "search", "ci", now=datetime.now(UTC))
        await gateway.until(applied=1, within=1.0)
        keys_file.revoke(keys, "search", "ci")
        await gateway.until(applied=2, within=1.0)
        assert [[held.key.name for held in config.keys] for config in gateway.applied] == [["ci"], []]


async def test_a_bad_file_changes_nothing_and_is_told_once(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:
        first = gateway.reload.config
        gateway.path.write_text(BAD)
        await gateway.until(refused=1)
        gateway.path.write_text(BAD + "# the same mistakes in the same places\n")
        await gateway.quiet()
        assert gateway.refusals[0][0] == 'unknown key; did you mean "models"?'
        assert gateway.reload.config is first
        assert gateway.reload.mistakes
        gateway.path.write_text("providers: [")
        await gateway.until(refused=2)


async def test_a_good_file_after_a_bad_one_clears_it_even_if_it_is_the_old_one(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:
        gateway.path.write_text(BAD)
        await gateway.until(refused=1)
        gateway.path.write_text(GOOD)
        await gateway.until(applied=1, refused=1)
        assert gateway.reload.mistakes == ()


async def test_a_keys_file_that_only_the_refused_configuration_names_is_watched_too(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "keys.yaml"
    other.parent.mkdir()
    other.write_text("teams: [")
    async with watching(tmp_path) as gateway:
        gateway.path.write_text(GOOD + "server: {keys_file: elsewhere/keys.yaml}\n")
        await gateway.until(refused=1)
        other.write_text("teams: {}")
        await gateway.until(applied=1, refused=1)


@pytest.mark.fault("CFG-05")
async def test_a_variable_that_is_gone_is_refused_by_name_and_the_running_one_stays(tmp_path: Path) -> None:
    environ = {"KEY": "CANARY"}
    async with watching(tmp_path, GOOD.replace("{kind: scripted}", '{kind: openai, api_key: "${KEY}"}'), environ=environ) as gateway:
        environ.clear()
        gateway.reload.soon()
        await gateway.until(refused=1)
        assert gateway.refusals == [["the environment variable KEY is not set"]]
        assert gateway.applied == []


async def test_sighup_applies_an_unchanged_file_again(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:
        gateway.reload.soon()
        await gateway.until(applied=1)


async def test_a_file_that_is_away_for_a_moment_is_no_mistake(tmp_path: Path) -> None:
    keys = tmp_path / "spangate.keys.yaml"
    keys_file.new(keys, "search", "ci", now=datetime.now(UTC))
    async with watching(tmp_path) as gateway:
        for path in (gateway.path, keys):
            path.rename(tmp_path / "away")
            await asyncio.sleep(0.2)
            (tmp_path / "away").rename(path)
        gateway.path.write_text("")
        await asyncio.sleep(0.1)
        gateway.path.write_text(GOOD)
        await gateway.quiet()
        assert (gateway.applied, gateway.refusals) == ([], [])


async def test_a_file_that_stays_away_is_told_once(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:
        gateway.path.unlink()
        await gateway.until(refused=1)
        await gateway.quiet()
        assert gateway.refusals == [["there is no such file: `spangate init` writes one"]]


async def test_a_file_in_the_middle_of_being_written_is_waited_for(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:
        text = GOOD + "".join(f"# {n}\n" for n in range(10)) + "organisation: acme\n"
        with gateway.path.open("w") as file:
            for line in text.splitlines(keepends=True):
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
                await asyncio.sleep(0.03)
        await gateway.until(applied=1)
        assert gateway.applied[0].settings.organisation == "acme"
        assert gateway.refusals == []


async def test_a_file_that_is_emptied_while_it_is_read_is_no_mistake(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:

        def torn() -> Config:
            gateway.path.write_text("")
            try:
                return load(gateway.path, environ={}, kinds=KINDS)
            finally:
                gateway.path.write_text(GOOD.replace("search", "support"))
                gateway.reload._load = gateway.load

        gateway.reload._load = torn
        gateway.path.write_text(GOOD.replace("search", "sales"))
        await gateway.until(applied=1)
        assert list(gateway.applied[0].settings.teams) == ["support"]
        assert gateway.refusals == []


async def test_a_burst_of_changes_is_one_or_two_loads(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:
        before = gateway.loads
        for number in range(50):
            gateway.path.write_text(f"{GOOD}organisation: a{number}\n")
        await asyncio.sleep(0.8)
        assert gateway.applied[-1].settings.organisation == "a49"
        assert gateway.loads - before <= 2


async def test_what_changed_before_the_watch_began_is_seen(tmp_path: Path) -> None:
    (tmp_path / "spangate.yaml").write_text(GOOD)
    gateway = Gateway(tmp_path / "spangate.yaml", {})
    gateway.path.write_text(GOOD + "organisation: acme\n")
    gateway.reload.start()
    await gateway.until(applied=1)
    await gateway.reload.stop()


async def test_a_configuration_that_cannot_be_taken_into_use_is_refused(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:
        running = gateway.reload.config
        gateway.fault = "answers.yaml: no such file"
        gateway.path.write_text(GOOD + "organisation: acme\n")
        await gateway.until(refused=1)
        assert (gateway.refusals, gateway.reload.config) == ([["answers.yaml: no such file"]], running)
        gateway.fault = ""
        gateway.reload.soon()
        await gateway.until(applied=1, refused=1)


@pytest.mark.parametrize("wrong", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir], ids=["pipe", "endless", "folder"])
@pytest.mark.parametrize("name", ["spangate.yaml", "spangate.keys.yaml"])
async def test_what_is_no_file_stops_nothing(tmp_path: Path, name: str, wrong: Callable[[Path], None]) -> None:
    path = tmp_path / name
    async with watching(tmp_path) as gateway:
        path.unlink(missing_ok=True)
        wrong(path)
        await gateway.until(refused=1)
        path.rmdir() if path.is_dir() else path.unlink()
        (tmp_path / "spangate.yaml").write_text(GOOD + "organisation: acme\n")
        await gateway.until(applied=1, refused=len(gateway.refusals))


async def test_a_revoked_key_ends_while_the_file_is_bad(tmp_path: Path) -> None:
    keys, moment = tmp_path / "spangate.keys.yaml", datetime.now(UTC)
    for name in ("laptop", "other"):
        keys_file.new(keys, "search", name, now=moment)
    async with watching(tmp_path) as gateway:
        first = gateway.reload.config
        gateway.path.write_text(BAD)
        await gateway.until(refused=1)
        assert gateway.rekeyed == []
        keys_file.revoke(keys, "search", "laptop")
        await until(lambda: bool(gateway.rekeyed))
        keys_file.new(keys, "search", "new", now=moment)  # waits for the file to be mended, as all that is new
        await gateway.quiet()
        assert [[held.key.name for held in config.keys] for config in gateway.rekeyed] == [["other"]]
        assert gateway.reload.config is gateway.rekeyed[0]
        assert (gateway.rekeyed[0].settings, gateway.rekeyed[0].version != first.version) == (first.settings, True)
        gateway.path.write_text(GOOD)
        await gateway.until(applied=1, refused=1)
        assert [held.key.name for held in gateway.applied[0].keys] == ["other", "new"]


async def test_a_name_server_that_is_gone_keeps_no_key_alive(tmp_path: Path) -> None:
    gone = Event()
    async with watching(tmp_path) as gateway:
        lookups = [asyncio.create_task(asyncio.to_thread(gone.wait)) for _ in range(64)]
        gateway.path.write_text(GOOD + "organisation: acme\n")
        try:
            await gateway.until(applied=1)
        finally:
            gone.set()
            await asyncio.gather(*lookups)


async def test_stopping_is_quick_and_final(tmp_path: Path) -> None:
    async with watching(tmp_path) as gateway:
        began = monotonic()
        await gateway.reload.stop()
        assert monotonic() - began < 0.5
        gateway.path.write_text(GOOD + "organisation: acme\n")
        await gateway.quiet()


async def test_stopping_what_never_started(tmp_path: Path) -> None:
    (tmp_path / "spangate.yaml").write_text(GOOD)
    await Gateway(tmp_path / "spangate.yaml", {}).reload.stop()


async def test_without_a_file_there_is_nothing_to_watch(tmp_path: Path) -> None:
    applied: list[Config] = []
    config = load_zero()
    reload = Reload(config, load=load_zero, apply=applied.append, refused=lambda mistakes: None, rekey=applied.append)
    reload.start()
    await asyncio.sleep(0.2)
    reload.soon()
    await asyncio.sleep(0.3)
    await reload.stop()
    assert len(applied) == 1


def load_zero() -> Config:
    return from_environment({"OPENAI_API_KEY": "k"}, KINDS)
