"""`spangate sql`: asked while the gateway runs and while it doesn't; shown to people, handed to programs."""

from __future__ import annotations

import csv
import json
import re
import signal
from pathlib import Path

import pytest

from spangate.exporters.usage.schema import TABLES, VIEWS
from spangate.proxy.commands.failure import Failure
from spangate.proxy.commands.sql import parameters

from accounts import accounts, ended
from house.source import ROOT
from program import Ran, on_a_terminal, spangate
from serving import serving
from upstream import Misbehaving, chat_answer, play

BY_TEAM = "SELECT team, calls, input_tokens FROM usage_by_team"


async def kept(folder: Path, calls: int = 2) -> None:
    """Usage of some calls, and a file that says where it is."""
    (folder / "spangate.yaml").write_text("usage: {path: usage.duckdb, retention: 30000d}\n")
    async with accounts(folder) as usage:
        for _ in range(calls):
            usage.record(ended(user='=1+1,"x"\x1b[2J'))


def ask(folder: Path, *arguments: str) -> Ran:
    return spangate("sql", *arguments, folder=folder)


async def test_the_same_answer_while_it_runs_and_after(tmp_path: Path) -> None:
    async with Misbehaving(play(chat_answer("Hello"), chat_answer("Hello"))) as up:
        with serving(tmp_path, up.base_url, usage={"path": "usage.duckdb"}) as program:
            for _ in range(2):
                assert (await program.ask()).status == 200
            during = ask(tmp_path, BY_TEAM)
            assert (tmp_path / "usage.duckdb.sock").is_socket()
            program.process.send(signal.SIGTERM)
            await program.end()
    assert not (tmp_path / "usage.duckdb.sock").exists()
    after = ask(tmp_path, BY_TEAM)
    assert (during.code, during.err) == (after.code, after.err) == (0, "")
    assert during.out == after.out
    assert [line.split()[:2] for line in during.out.splitlines()] == [["team", "calls"], ["search", "2"]]


async def test_after_a_kill_nothing_is_missing(tmp_path: Path) -> None:
    async with Misbehaving(play(*[chat_answer("Hello")] * 5)) as up:
        with serving(tmp_path, up.base_url, usage={"path": "usage.duckdb"}) as program:
            for _ in range(5):
                assert (await program.ask()).status == 200
            program.process.send(signal.SIGKILL)
            await program.end()
    assert ask(tmp_path, "SELECT outcome, count(*) AS n FROM calls GROUP BY ALL").out == "outcome    n\ncompleted  5\n"


async def test_csv_and_json_to_a_pipe_and_to_files(tmp_path: Path) -> None:
    await kept(tmp_path)
    query = 'SELECT team, "user", cost FROM calls LIMIT 1'
    ran = ask(tmp_path, query, "--format", "csv")
    assert list(csv.reader(ran.out.splitlines())) == [["team", "user", "cost"], ["search", '=1+1,"x"\x1b[2J', ""]]
    assert json.loads(ask(tmp_path, query, "--format", "json").out) == [{"team": "search", "user": '=1+1,"x"\x1b[2J', "cost": None}]
    for name in ("rows.csv", "rows.json", "rows.txt"):
        written = ask(tmp_path, query, "-o", name)
        assert (written.code, written.out, written.err) == (0, "", "")
    assert (tmp_path / "rows.csv").read_text() == ran.out
    assert json.loads((tmp_path / "rows.json").read_text())[0]["team"] == "search"
    assert (tmp_path / "rows.txt").read_text() == 'team    user          cost\nsearch  =1+1,"x"?[2J  NULL\n'


async def test_a_terminal_gets_a_table_and_no_commands_of_callers(tmp_path: Path) -> None:
    await kept(tmp_path)
    for arguments in ([], ["--format", "csv"], ["--format", "json"], ["-o", "/dev/stdout"], ["--format", "csv", "-o", "/dev/stdout"]):
        ran = on_a_terminal("sql", 'SELECT team, "user", 1 AS "\x1b[2J\x1b]0;x\x07" FROM calls', *arguments, folder=tmp_path)
        assert ran.code == 0
        assert "search" in ran.out
        assert "\x1b[2J" not in ran.out
        assert "\x1b]" not in ran.out


async def test_a_pipe_to_a_terminal_gets_no_commands_in_its_head(tmp_path: Path) -> None:
    await kept(tmp_path)
    for arguments in ([], ["--format", "csv"], ["--format", "json"]):
        ran = ask(tmp_path, 'SELECT 1 AS "\x1b[2J"', *arguments)
        assert (ran.code, "\x1b" in ran.out) == (0, False)


async def test_parameters(tmp_path: Path) -> None:
    await kept(tmp_path, 3)
    count = "SELECT count(*) AS n FROM calls WHERE"
    assert ask(tmp_path, f"{count} team = $team AND input_tokens < $most", "--param", "team=search", "--param", "most=14").out == "n\n3\n"
    assert ask(tmp_path, f"{count} team = $1", "--param", "1=legal").out == "n\n0\n"


async def test_more_rows_than_may_be(tmp_path: Path) -> None:
    await kept(tmp_path)
    ran = ask(tmp_path, "SELECT * FROM range(20000)")
    assert (ran.code, len(ran.out.splitlines())) == (0, 10_001)
    assert ran.err == "spangate: these are the first 10000 rows; there are more\n"


async def test_what_goes_wrong_is_one_line(tmp_path: Path) -> None:
    await kept(tmp_path)
    (tmp_path / "other.yaml").write_text("usage: {enabled: false}\n")
    cases = [
        (["SELECT nothing FROM calls"], 2, 'column "nothing" not found'),
        (["SELECT 1; SELECT 2"], 2, "one SELECT is allowed"),
        (["SELECT $1"], 2, "This SQL can't be run"),
        (["SELECT 1", "--param", "x"], 2, "must be NAME=VALUE"),
        (["SELECT 1", "--format", "parquet"], 2, "parquet"),
        (["SELECT 1", "-o", "rows.parquet"], 2, "-o rows.parquet: must end in .csv, .json or .txt"),
        (["SHOW TABLES"], 2, "docs/usage.md tells the columns of every table"),
        (["SELECT 1", "-c", "other.yaml"], 2, "keeps no usage"),
        (["SELECT 1", "-c", "none.yaml"], 2, "there is no such file"),
        (["SELECT 1", "-o", "no/such/folder.csv"], 1, "No such file or directory"),
        ([], 2, "Missing argument 'SQL'"),
    ]
    for arguments, code, told in cases:
        ran = ask(tmp_path, *arguments)
        assert (ran.code, ran.out) == (code, ""), ran
        assert told in ran.err
        assert len(ran.err.splitlines()) == 1, ran.err
    assert not (tmp_path / "rows.parquet").exists()


PAGE = (ROOT / "docs/usage.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 5
    async with accounts(tmp_path) as usage:
        usage.record(ended(tags={"env": "prod"}, thread="t1", stream=True))
        for sql in EXAMPLES:
            answer = await usage.sql.query(sql)
            assert answer.rows or "today()" in sql or "outcome = 'error'" in sql, sql
            assert (await usage.sql.query(sql, team="search")).columns == answer.columns


def test_the_page_names_every_column_and_view() -> None:
    names = {name for columns in TABLES.values() for name, _, _ in columns} | {*TABLES, *VIEWS}
    assert sorted(name for name in names if f"`{name}`" not in PAGE) == []


def test_where_there_is_no_usage_yet(tmp_path: Path) -> None:
    ran = ask(tmp_path, "SELECT 1")
    assert ran.code == 1
    assert "spangate.duckdb isn't there yet" in ran.err


def test_values_of_parameters() -> None:
    given = ["a=1", "b=1.5", "c=x", 'd="7"', "e=true", "f=null", "g=", "h=a=b", "i=[1]"]
    wanted = {"a": 1, "b": 1.5, "c": "x", "d": "7", "e": True, "f": None, "g": "", "h": "a=b", "i": "[1]"}
    assert parameters(given) == wanted


@pytest.mark.parametrize("given", [["x"], ["=1"], ["a b=1"], ["0=1"], ["a=1", "a=2"], ["\x1b=1"]])
def test_parameters_that_are_none(given: list[str]) -> None:
    with pytest.raises(Failure, match="--param"):
        parameters(given)
