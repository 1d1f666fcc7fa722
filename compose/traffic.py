"""Calls of all kinds through a running gateway, so that its dashboard has something to show: answers and streams, tools and embeddings,
refusals, failures, and clients that leave.

    traffic.py http://127.0.0.1:8484/v1 [--calls 100] [--every 0.25]

The gateway's spangate.yaml is compose/spangate.yaml, and SPANGATE_CONFIG names it: the keys come from `spangate keys new`. Without
--calls it goes on until it is stopped.
"""  # noqa: INP001 - a program, not a package

from __future__ import annotations

import argparse
import asyncio
import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

from openai import AsyncOpenAI, OpenAIError

SPANGATE = [sys.executable, "-P", "-m", "spangate.proxy"]
NAME = "traffic"
TEAMS = ("search", "support", "interns")
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
# What is called, as whom, with which words; over and over, the usual more often than what goes wrong.
ROUND = (
    ("ask", "search", "fast", "What is the capital of Italy?"),
    ("stream", "search", "fast", "What is a gateway for?"),
    ("ask", "support", "strong", "Please think: may order 1042 have a refund?"),
    ("stream", "interns", "fast", "What is a gateway for?"),
    ("tool", "search", "fast", "What is the weather in Rome?"),
    ("stream", "support", "strong", "Please think: may order 1042 have a refund?"),
    ("embed", "search", "vectors", "The capital of Italy is Rome."),
    ("ask", "interns", "fast", "What is the capital of Italy?"),
    ("ask", "interns", "strong", "Write my essay."),  # not a model of theirs
    ("stream", "search", "fast", "What is a gateway for?"),
    ("ask", "support", "fast", "I am out of luck."),
    ("ask", "support", "strong", "There are too many of us."),
    ("stream", "support", "fast", "This answer is cut short."),
    ("stream", "interns", "fast", "And then: silence."),
    ("leave", "search", "fast", "What is a gateway for?"),
    ("ask", "nobody", "fast", "Who am I?"),  # a key that nobody made
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Calls of all kinds through a gateway.")
    parser.add_argument("url", help="its base URL, such as http://127.0.0.1:8484/v1")
    parser.add_argument("--calls", type=int, help="how many; without it until it is stopped")
    parser.add_argument("--every", type=float, default=0.25, help="seconds between two calls")
    asked = parser.parse_args()
    keys = {team: new_key(team) for team in TEAMS} | {"nobody": "sg-nobody"}
    try:
        asyncio.run(Traffic(asked.url, keys).run(asked.calls, asked.every))
    except KeyboardInterrupt:
        return 130
    return 0


def new_key(team: str) -> str:
    """A key of the team; the one of an earlier run is revoked."""
    subprocess.run([*SPANGATE, "keys", "revoke", f"{team}/{NAME}"], capture_output=True, check=False)  # noqa: S603 - our own program
    made = subprocess.run([*SPANGATE, "keys", "new", team, "--name", NAME], stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return made.stdout.rpartition("OPENAI_API_KEY=")[2].strip()


class Traffic:
    """The calls of all teams."""

    def __init__(self, url: str, keys: dict[str, str]) -> None:
        self._clients = {team: AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=30) for team, key in keys.items()}

    async def run(self, calls: int | None, every: float) -> None:
        """So many calls, begun one after another, whether or not those before them have ended."""
        await self._accepted()
        async with asyncio.TaskGroup() as group:
            for kind, team, model, text in rounds(calls):
                group.create_task(self._call(kind, team, model, text))
                await asyncio.sleep(every)
        for client in self._clients.values():
            await client.close()

    async def _accepted(self) -> None:
        """A running gateway takes a new key within a second."""
        for team in TEAMS:
            for _ in range(50):
                with suppress(OpenAIError):
                    await self._clients[team].models.list()
                    break
                await asyncio.sleep(0.1)

    async def _call(self, kind: str, team: str, model: str, text: str) -> None:
        client = self._clients[team]
        with suppress(OpenAIError):  # what fails here was meant to
            if kind == "embed":
                await client.embeddings.create(model=model, input=text)
                return
            tools = {"tools": [WEATHER]} if kind == "tool" else {}
            streamed = kind in {"stream", "leave"}
            messages = [{"role": "user", "content": text}]
            answer = await client.chat.completions.create(model=model, messages=messages, stream=streamed, **tools)
            if not streamed:
                return
            async with answer:
                async for _ in answer:
                    if kind == "leave":
                        break


def rounds(calls: int | None) -> Iterator[tuple[str, str, str, str]]:
    return itertools.islice(itertools.cycle(ROUND), calls)


if __name__ == "__main__":
    raise SystemExit(main())
