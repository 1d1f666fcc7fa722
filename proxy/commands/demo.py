"""`spangate demo`: a gateway, three teams, and what becomes of their calls, in a few seconds and without a file left.

The client is OpenAI's own package, unchanged: it is imported here and in demo_against.py, and nowhere else.
"""

from __future__ import annotations

import asyncio
import io
import logging
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from openai import APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

from ...call.seen import Seen
from ...exporters.console import Console
from ...exporters.record import Fanout
from ...exporters.usage.recorder import SpoolRecorder
from ..app import App, Setting
from ..telling import telling_of
from .demo_page import Page
from .demo_setting import CONFIGURATION, TEAMS, Stage, stage
from .ending import Ending
from .failure import Failure, unusable
from .serve import new_loop

STARTED = "Three teams with a key each. A script answers: nothing leaves this machine."
WEATHER: Any = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
CROWD = [
    *[("search", "fast", "What is the capital of Italy?")] * 9,
    *[("support", "strong", "Another customer wants a refund.")] * 6,
    *[("interns", "fast", "What is the capital of Italy?")] * 4,
    *[("interns", "strong", "Write my essay.")] * 2,
]
BY_TEAM = """\
SELECT coalesce(team, 'all') AS team, sum(calls)::BIGINT AS calls, sum(refused)::BIGINT AS refused, sum(failed)::BIGINT AS failed,
    sum(input_tokens)::BIGINT AS "tokens in", sum(output_tokens)::BIGINT AS "tokens out", sum(cost) AS cost
FROM usage_by_team GROUP BY ROLLUP (team) ORDER BY grouping(team), team"""
NEXT = (
    ("init", "writes a spangate.yaml for the keys that you have"),
    ("serve", "runs the gateway; OPENAI_API_KEY is all it needs"),
    ("--help", "every command, with examples"),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for. `against`: the address of a gateway that runs; `models`: what is asked of it."""

    keep: bool = False
    against: str | None = None
    key: str = ""
    models: Sequence[str] = ()


def demo(wanted: Wanted, began: float) -> int:
    """Run the demo, which began at this moment of the monotonic clock; the exit code.

    Raises:
        Failure: a call failed that should not have.
    """
    logging.getLogger("spangate").addHandler(logging.NullHandler())  # what the provider's fault makes the gateway log is shown here
    page = Page()
    if wanted.against is not None and wanted.keep:
        raise unusable("--keep lets a gateway of the demo's own run on; with --against there is none")
    if wanted.against is not None:
        from .demo_against import against

        return against(page, wanted.against, wanted.key, wanted.models, began)
    with Ending() as ending:
        try:
            with TemporaryDirectory(prefix="spangate-") as folder, asyncio.Runner(loop_factory=new_loop()) as runner:
                runner.run(_run(page, Path(folder), began if wanted.keep else None, ending))
        except asyncio.CancelledError:
            return ending.code
        except OpenAIError as error:
            raise Failure(f"a call of the demo failed: {error}") from error
        if wanted.keep:
            page.say("Ended, and left nothing behind.")
    if not wanted.keep:
        page.end(time.monotonic() - began, next_steps())
    return 0


def next_steps() -> list[tuple[str, str]]:
    """Commands to go on with, and what each does."""
    program = program_of(sys.argv[0])
    return [(f"{program} {command}", told) for command, told in NEXT]


def program_of(called: str) -> str:
    """What to type for this program: its name alone where a shell finds it, else the path by which it was called."""
    return called if Path(called).name == "spangate" and shutil.which("spangate") is None else "spangate"


async def _run(page: Page, folder: Path, keep_since: float | None, ending: Ending) -> None:
    task = asyncio.current_task()
    assert task is not None
    ending.calls(task.cancel)
    ready = stage(folder)
    told = Told()
    telling = telling_of(ready.config, {}, Console(io.StringIO()))
    assert telling.usage is not None
    recorder = Fanout(told, *(part for part in (telling.measuring, telling.usage) if part is not None))
    app = App(ready.config, Setting(recorder, usage=telling.usage, measuring=telling.measuring))
    address = await app.start("127.0.0.1", 0)
    try:
        # No proxy of the environment for a call to this machine, and no certificates to load.
        async with DefaultAsyncHttpxClient(trust_env=False, verify=False) as http:
            await Play(page, ready, told, telling.usage, url=f"{address.url}/v1", http=http).perform()
        if keep_since is not None:
            stop = asyncio.Event()
            ending.calls(stop.set)
            page.kept(address.url, ready.keys, str(ready.config.path), program_of(sys.argv[0]))
            took = time.monotonic() - keep_since
            page.say(f"Took {took:.1f} s, and goes on: calls are shown as they end. Ctrl-C ends it.")
            await keep(page, told, stop)
    finally:
        ending.begun()
        await app.drain(0)


async def keep(page: Page, told: Told, stop: asyncio.Event) -> None:
    """Go on until it stops, and show the calls that come meanwhile."""
    told.listener = page.call
    await stop.wait()
    told.listener = None


class Told:
    """A Recorder: every call that has ended, oldest first."""

    def __init__(self) -> None:
        self.calls: list[Seen] = []
        self.listener: Callable[[Seen], None] | None = None
        self._more = asyncio.Event()

    def record(self, seen: Seen) -> None:
        if self.listener is not None:
            self.listener(seen)  # and not kept: somebody may call for hours
            return
        self.calls.append(seen)
        self._more.set()

    def flush(self) -> None:
        """Nothing waits."""

    async def until(self, number: int) -> None:
        """Wait until so many calls have ended."""
        while len(self.calls) < number:
            self._more.clear()
            await self._more.wait()


class Play:
    """The demo's calls, in the order in which they are shown."""

    def __init__(self, page: Page, ready: Stage, told: Told, accounts: SpoolRecorder, *, url: str, http: Any) -> None:
        self.page = page
        self.ready = ready
        self.told = told
        self.accounts = accounts
        self.url = url
        self.clients = {team: AsyncOpenAI(base_url=url, api_key=ready.keys[team], http_client=http, max_retries=0) for team in TEAMS}

    async def perform(self) -> None:
        self.page.title(self.url, STARTED)
        for scene in (self.answer, self.stream, self.tool_call, self.embedding, self.refusal, self.failure, self.crowd, self.trace):
            await scene()

    async def answer(self) -> None:
        self.page.step("A client changes its base_url and its key, and nothing else")
        self.page.code(f'client = OpenAI(base_url="{self.url}", api_key="{self.ready.keys["support"][:7]}…")')
        answer = await self._recorded(self._ask("support", "strong", "A customer wants a refund for order 1042."))
        self.page.said(answer.choices[0].message.content)
        self.page.call(self.told.calls[-1])

    async def stream(self) -> None:
        self.page.step("A stream passes word by word, as the provider sends it")
        await self._recorded(self._stream())
        self.page.end_of_words()
        self.page.call(self.told.calls[-1])

    async def _stream(self) -> None:
        async for chunk in await self._ask("search", "fast", "What is a gateway for?", stream=True):
            for choice in chunk.choices:
                if choice.delta.content:
                    self.page.word(choice.delta.content)

    async def tool_call(self) -> None:
        self.page.step("A tool call")
        answer = await self._recorded(self._ask("search", "fast", "What is the weather in Rome?", tools=[WEATHER]))
        for call in answer.choices[0].message.tool_calls:
            self.page.said(f"{call.function.name}({call.function.arguments})")
        self.page.call(self.told.calls[-1])

    async def embedding(self) -> None:
        self.page.step("An embedding")
        answer = await self._recorded(self.clients["search"].embeddings.create(model="vectors", input="one gateway, many models"))
        vector = answer.data[0].embedding
        self.page.said(f"[{', '.join(f'{number:+.3f}' for number in vector[:4])}, …]  {len(vector)} dimensions")
        self.page.call(self.told.calls[-1])

    async def refusal(self) -> None:
        self.page.step("A call that is refused: interns may use fast, and ask for strong")
        try:
            await self._recorded(self._ask("interns", "strong", "Write my essay."))
        except APIStatusError as error:
            self._explain(error)
            self.page.call(self.told.calls[-1])
            return
        raise Failure("the forbidden call went through: this is a defect of spangate")

    def _explain(self, error: APIStatusError) -> None:
        told: dict[str, Any] = error.body if isinstance(error.body, dict) else {}
        line = self.ready.line_of("interns")
        facts = [
            ("status", f"{error.status_code}, which the client raises as openai.{type(error).__name__}"),
            ("code", str(told.get("code"))),
            ("message", str(told.get("message"))),
            ("rule", f"teams.interns.models, line {line} of the demo's spangate.yaml:"),
        ]
        self.page.facts(facts)
        self.page.excerpt(CONFIGURATION, line, "strong is not among them")
        self.page.facts([("request", str(told.get("request_id")))])

    async def failure(self) -> None:
        self.page.step("A call that fails: the provider is overloaded, and the client is told so")
        try:
            await self._recorded(self._ask("support", "strong", "Summarize the incident."))
        except APIStatusError as error:
            told: dict[str, Any] = error.body if isinstance(error.body, dict) else {}
            facts = [
                ("status", f"{error.status_code}, which the client raises as openai.{type(error).__name__}"),
                ("code", f"{told.get('code')}, from the {told.get('source')}"),
                ("message", str(told.get("message"))),
            ]
            self.page.facts(facts)
            self.page.trace(self.told.calls[-1])
            return
        raise Failure("the failing call went through: this is a defect of spangate")

    async def crowd(self) -> None:
        self.page.step(f"Usage by team, after {len(CROWD)} more calls at once, as SQL tells it: usage_by_team")
        before = len(self.told.calls)
        await asyncio.gather(*(self._quietly(*each) for each in CROWD))
        await self.told.until(before + len(CROWD))
        answer = await self.accounts.sql.query(BY_TEAM)
        self.page.usage(answer.columns, [[name, *map(_figure, counts), f"${cost or 0:.6f}"] for name, *counts, cost in answer.rows])

    async def _quietly(self, team: str, model: str, text: str) -> None:
        with suppress(APIStatusError):
            await self._ask(team, model, text)

    async def trace(self) -> None:
        self.page.step("One call as its trace: what came in, and what was sent upstream for it")
        self.page.trace(next(seen for seen in self.told.calls if seen.stream))

    async def _ask(self, team: str, model: str, text: str, **more: Any) -> Any:
        return await self.clients[team].chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **more)

    async def _recorded(self, call: Awaitable[Any]) -> Any:
        """The answer to a call, once the call has been recorded too."""
        before = len(self.told.calls)
        try:
            answer = await call
        except APIStatusError:
            await self.told.until(before + 1)
            raise
        await self.told.until(before + 1)
        return answer


def _figure(number: int) -> str:
    return f"{number:,}"
