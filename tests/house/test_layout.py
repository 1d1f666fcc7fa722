"""The shape of the tree: where files are, how long they grow, what they are called, what they may not do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from house.source import ROOMS, ROOT, dotted, files, functions, package, pyproject, tree

# Files whose tests are another's. A package's opening words have none to test.
TESTED_ELSEWHERE = {
    "call/clock.py": "every test that gives a clock",
    "proxy/__main__.py": "tests/proxy/test_cli.py",
    "proxy/providers/provider.py": "the contract, tests/proxy/providers/contract.py",
}

# Tests of a whole room rather than of a file.
OF_THE_ROOM = {"tests/agent/test_acceptance.py": "what every middleware promises, one table"}

# The places that isolate: what fails in them may be anything, and must not fail what stands around them.
BROAD = {
    "proxy/endpoints.py": "one call's defect is one call's 500",
    "exporters/alone.py": "an exporter never fails a call",
    "agent/acting.py": "a tool's failure is its result",
    "agent/middlewares/model_fallback.py": "a model's failure is the next one's turn",
    "agent/middlewares/model_router.py": "a choice that fails leaves the agent its own model",
    "agent/middlewares/harmless.py": "what only watches, or can be done without, fails no reply",
    "agent/stream.py": "a reply that fails says so before it raises",
    "agent/tools/running.py": "what a tool raises is raised where it is waited for",
    "agent/tools/threads.py": "what a thread raises is raised where it is waited for",
    "policies/shadow.py": "a policy in shadow fails no call",
}

LONGEST_FILE, LONGEST_FUNCTION = 400, 60

# What is longer than the caps, with the reason. Empty, and meant to stay so.
LONG: dict[str, str] = {}

VAGUE = re.compile(r"(^|_)(manager|helper|util|handler)s?(_|$)", re.IGNORECASE)
VAGUE_CLASS = re.compile(r"(Manager|Helper|Util|Handler)s?(?=[A-Z_]|$)")
FRAMEWORKS_WORDS = {"expect_handler", "exception_handler", "set_exception_handler"}  # aiohttp's and asyncio's


def test_each_file_has_a_test_file() -> None:
    missing = [
        f"{path} -> {mirror}"
        for path in files(*ROOMS)
        if path.name != "__init__.py" and str(path) not in TESTED_ELSEWHERE
        if not (ROOT / (mirror := Path("tests") / path.parent / f"test_{path.name}")).exists()
    ]
    assert not missing


def test_each_test_file_has_a_file() -> None:
    strays = [str(path) for room in ROOMS for path in files(f"tests/{room}") if path.name.startswith("test_") and not named_after(path)]
    assert set(strays) == set(OF_THE_ROOM)


def named_after(test: Path) -> bool:
    """`tests/proxy/test_server_drain.py` may cut the tests of `proxy/server.py` by topic."""
    room, name = test.relative_to("tests").parent, test.stem.removeprefix("test_")
    words = name.split("_")
    stems = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    return any((ROOT / room / f"{stem}.py").exists() or (ROOT / room / stem).is_dir() for stem in stems)


def test_the_package_list_is_the_tree() -> None:
    setuptools = pyproject()["tool"]["setuptools"]
    found = {"spangate"} | {".".join(("spangate", *path.parent.parts)) for path in files(*ROOMS)}
    assert set(setuptools["packages"]) == found
    assert setuptools["package-dir"] == {name: name.removeprefix("spangate").strip(".").replace(".", "/") or "." for name in found}


def test_every_folder_of_the_package_says_what_it_is() -> None:
    assert [str(path.parent) for path in files(*ROOMS) if not (ROOT / path.parent / "__init__.py").exists()] == []


def test_the_root_holds_one_python_file() -> None:
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]


def test_no_folder_has_the_name_of_the_package() -> None:
    seen = [path for path in ROOT.rglob("spangate") if path.is_dir()]
    ours = [path for path in seen if not path.relative_to(ROOT).parts[0].startswith((".", "build"))]  # `pip install .` leaves build/
    assert [str(path) for path in ours] == []


def test_virtual_environments_start_with_a_dot() -> None:
    assert [path.parent.name for path in ROOT.glob("*/pyvenv.cfg") if not path.parent.name.startswith(".")] == []


@pytest.mark.parametrize("path", package(), ids=str)
def test_every_module_opens_with_what_belongs_in_it(path: Path) -> None:
    assert ast.get_docstring(tree(path))


@pytest.mark.parametrize("path", package(), ids=str)
def test_length(path: Path) -> None:
    long = [str(path)] if len((ROOT / path).read_text("utf-8").splitlines()) > LONGEST_FILE else []
    long += [f"{path}:{each.name}" for each in functions(tree(path)) if length(each) > LONGEST_FUNCTION]
    assert [each for each in long if each not in LONG] == []


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


@pytest.mark.parametrize("path", package(), ids=str)
def test_names_say_what_a_thing_is(path: Path) -> None:
    assert not VAGUE.search(path.stem)
    named = [each.name for each in functions(tree(path)) if VAGUE.search(each.name) and each.name not in FRAMEWORKS_WORDS]
    named += [each.name for each in ast.walk(tree(path)) if isinstance(each, ast.ClassDef) and VAGUE_CLASS.search(each.name)]
    assert named == []


@pytest.mark.parametrize("path", package(), ids=str)
def test_a_broad_except_stands_only_where_we_isolate(path: Path) -> None:
    caught = [
        f"{path}:{each.lineno}"
        for each in ast.walk(tree(path))
        if isinstance(each, ast.ExceptHandler) and catches_all(each) and not raises_again(each)
    ]
    assert not caught or str(path) in BROAD, caught


def catches_all(caught: ast.ExceptHandler) -> bool:
    kinds = caught.type.elts if isinstance(caught.type, ast.Tuple) else [caught.type]
    return any(kind is None or dotted(kind) in {"Exception", "BaseException"} for kind in kinds)


def raises_again(caught: ast.ExceptHandler) -> bool:
    """Cleaning up and raising again swallows nothing."""
    return isinstance(caught.body[-1], ast.Raise) and caught.body[-1].exc is None


COMMANDS = re.compile(
    r"(eval|exec|compile|__import__)$|builtins\.(eval|exec|compile|__import__)$|os\.(system|popen|startfile|fork\w*|exec\w+|spawn\w+|posix_spawn\w*)$"
    r"|yaml\.((full_|unsafe_)?load(_all)?)$|(.*\.)?(create_)?subprocess_(exec|shell)$|(pty|runpy|subprocess)\."
)
FOREIGN = {"cloudpickle", "code", "dill", "jsonpickle", "marshal", "multiprocessing", "pickle", "pty", "runpy", "shelve", "subprocess"}
BY_NAME = {"proxy/kinds.py", "agent/__init__.py"}  # where a name becomes code, out of a table of ours


@pytest.mark.fault("INJ-14")
@pytest.mark.parametrize("path", package(), ids=str)
def test_nothing_runs_a_command_or_foreign_code(path: Path) -> None:
    assert foreign_code(tree(path)) == []
    assert str(path) in BY_NAME or not {"importlib", "importlib.import_module", "importlib.util"} & imports(tree(path))


@pytest.mark.fault("INJ-14")
@pytest.mark.parametrize(
    "source",
    [
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.load_all(text)",
        "yaml.unsafe_load(text)",
        "from yaml import full_load",
        "await asyncio.create_subprocess_exec('ls')",
        "await asyncio.get_running_loop().subprocess_shell(protocol, 'ls')",
        "from asyncio import create_subprocess_shell as shell",
        "import pty as terminal",
        "pty.spawn('sh')",
        "import subprocess",
        "from subprocess import run",
        "os.execvp('sh', [])",
        "os.posix_spawn('sh', [], {})",
        "from os import system",
        "pickle = __import__('pickle')",
        "from pickle import loads",
        "eval(text)",
        "exec(compile(text, '', 'exec'))",
    ],
)
def test_what_runs_a_command_or_foreign_code_is_seen(source: str) -> None:
    assert foreign_code(ast.parse(f"async def f():\n    {source}"))


def test_what_only_has_such_a_name_is_let_be() -> None:
    assert foreign_code(ast.parse("self.expression.eval(x)\nyaml.safe_load(x)\nre.compile(x)\ncode.partition(x)\nregister.load(x)")) == []


def foreign_code(module: ast.Module) -> list[str]:
    """What would run a command, or make code of data: calls of it, and its import under whatever name."""
    called = {dotted(each) for each in ast.walk(module) if isinstance(each, ast.Call)}
    imported = imports(module)
    return sorted({name for name in called | imported if COMMANDS.match(name)} | {n for n in imported if n.partition(".")[0] in FOREIGN})


def imports(module: ast.Module) -> set[str]:
    """What is imported from elsewhere: modules, and `module.name`."""
    whole = {alias.name for each in ast.walk(module) if isinstance(each, ast.Import) for alias in each.names}
    froms = [each for each in ast.walk(module) if isinstance(each, ast.ImportFrom) and not each.level]
    return whole | {f"{each.module}.{alias.name}" for each in froms for alias in each.names}


@pytest.mark.parametrize("path", files("tests"), ids=str)
def test_nothing_of_ours_is_mocked(path: Path) -> None:
    named = {dotted(each) for each in ast.walk(tree(path)) if isinstance(each, ast.Attribute | ast.Name)}
    imported = {each.module for each in ast.walk(tree(path)) if isinstance(each, ast.ImportFrom)}
    assert not {name for name in named if name.endswith(("mock.patch", "monkeypatch.setattr")) or "MagicMock" in name}
    assert "unittest.mock" not in imported
    assert changed_of_ours(tree(path)) == []


@pytest.mark.parametrize(
    "source",
    [
        "from spangate.exporters import observe\nobserve.Attempt.__call__ = told",
        "from spangate.proxy.app import App\nApp.drain = nothing",
        "from spangate.proxy.app import App\nsetattr(App, 'drain', nothing)",
        "import spangate.proxy.app\nspangate.proxy.app.REPLAY = 0",
        "from spangate.proxy import app as ours\nours.REPLAY += 1",
        "from spangate.proxy.app import App\ndel App.drain",
    ],
)
def test_a_change_of_what_is_ours_is_seen(source: str) -> None:
    assert len(changed_of_ours(ast.parse(source))) == 1


def changed_of_ours(module: ast.Module) -> list[str]:
    """Attributes of our modules and classes that are assigned to: each test after it would run something else."""
    found = [each for each in ast.walk(module) if isinstance(each, ast.Import | ast.ImportFrom)]
    pairs = [(each.module or "" if isinstance(each, ast.ImportFrom) else alias.name, alias) for each in found for alias in each.names]
    ours = {(alias.asname or alias.name).partition(".")[0] for source, alias in pairs if source.partition(".")[0] == "spangate"}
    changed = [each for each in ast.walk(module) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store | ast.Del)]
    set_by_name = [each for each in ast.walk(module) if isinstance(each, ast.Call) and dotted(each) in {"setattr", "delattr"}]
    names = [*map(dotted, changed), *(f"{dotted(each.args[0])}." for each in set_by_name)]
    return [name for name in names if name.partition(".")[0] in ours]


@pytest.mark.parametrize("path", files("tests"), ids=str)
def test_no_test_is_skipped(path: Path) -> None:
    """What a machine may lack has a mark, and a target of its own in the Makefile."""
    named = {dotted(each).rpartition(".")[2] for each in ast.walk(tree(path)) if isinstance(each, ast.Attribute | ast.Name)}
    assert named & {"skip", "skipif", "skipIf", "skipUnless", "importorskip", "SkipTest", "xfail"} == set()


def test_the_version_has_one_home() -> None:
    import spangate

    assert "version" in pyproject()["project"]["dynamic"]
    assert pyproject()["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "spangate.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", spangate.__version__)
