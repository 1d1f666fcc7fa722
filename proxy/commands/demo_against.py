"""`spangate demo --against URL`: a few calls through a gateway that runs, with what each brought and where to look for it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from openai import APIConnectionError, APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

from ...call.amounts import show_seconds
from ..callers import loopback_address
from ..origin import Origin
from .demo import program_of
from .demo_page import Page
from .failure import Failure, unusable
from .rows import plain
from .serve import new_loop
from .words import count

MOST: Final = 2  # models that are asked, where nobody says which
PATIENCE: Final = 60.0  # seconds for one answer
QUESTION: Final = "Say in one short sentence what a gateway is for."
ANY: Final = "any"  # the client wants a key where the gateway wants none
# What a vendor's list holds besides models that chat.
_NO_CHAT: Final = re.compile(
    r"embed|vector|whisper|tts|dall-e|image|moderation|audio|realtime|transcribe|sora|rerank|babbage|davinci", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Came:
    """What one call brought. `headers`: those of ours."""

    status: int
    seconds: float
    headers: Mapping[str, str]
    tokens: str = ""
    error: str = ""


def against(page: Page, url: str, key: str, models: Sequence[str], began: float) -> int:
    """Drive the gateway at `url`; the exit code.

    Raises:
        Failure: it can't be asked, or answers none of the calls.
    """
    origin = origin_of(url)
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        try:
            last = runner.run(_run(page, origin, key, models))
        except asyncio.CancelledError:
            return 128 + signal.SIGTERM
    program, base = program_of(sys.argv[0]), base_of(origin)
    page.paste("what became of the last call, on the gateway's machine", f"{program} explain {last.headers.get('x-request-id', 'ID')}")
    page.paste("calls as they end, there too", f"{program} tail")
    page.paste("what Prometheus reads", f"curl {base}/metrics")
    if trace := last.headers.get("x-spangate-trace-id"):
        page.paste("what to look for where your traces go", trace)
    page.say(f"Took {time.monotonic() - began:.1f} s.")
    return 0


def origin_of(url: str) -> Origin:
    """The address of a gateway, with or without `/v1`.

    Raises:
        Failure: it is none.
    """
    try:
        return Origin.parse((url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1"))
    except ValueError:
        raise unusable(f"--against {plain(url[:100])}: must be the address of a gateway, such as http://127.0.0.1:8484") from None


def base_of(origin: Origin) -> str:
    return f"{origin.scheme}://{origin.authority.decode()}{origin.path}"


async def _run(page: Page, origin: Origin, key: str, models: Sequence[str]) -> Came:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    local = loopback_address(origin.host)  # then no proxy of the environment is asked
    async with DefaultAsyncHttpxClient(trust_env=not local) as http:
        client = AsyncOpenAI(base_url=f"{base_of(origin)}/v1", api_key=key or ANY, http_client=http, max_retries=0, timeout=PATIENCE)
        return await Visit(page, client, base_of(origin), key).perform(models)


class Visit:
    """The calls, in the order in which they are shown."""

    def __init__(self, page: Page, client: AsyncOpenAI, base: str, key: str) -> None:
        self.page = page
        self.client = client
        self.base = base
        self.key = key

    async def perform(self, wanted: Sequence[str]) -> Came:
        models = self._chosen(await self._listed(), wanted)
        self.page.title(f"{self.base}/v1", f"Real calls: {count(2 * len(models), 'answer')} of a sentence, of {', '.join(models)}.")
        came = [await each(model) for model in models for each in (self.whole, self.streamed)]
        good = [each for each in came if not each.error]
        if not good:
            raise Failure(f"no call was answered: {came[-1].error}")
        return good[-1]

    async def _listed(self) -> list[str]:
        """What the key may ask for."""
        try:
            answer = await self.client.models.with_raw_response.list()
            text = answer.http_response.text
        except APIStatusError as error:
            raise self._no_list(error) from None
        except (APIConnectionError, OpenAIError) as error:
            why = error.__cause__ or error
            raise Failure(
                f"no gateway answers at {self.base} ({plain(str(why))[:200] or type(why).__name__}): start one with `spangate serve`, or "
                "correct the address"
            ) from None
        try:
            return [str(each["id"]) for each in json.loads(text)["data"]]
        except (ValueError, KeyError, TypeError):
            raise Failure(f"{self.base}/v1/models answers with no list of models: is that a gateway?") from None

    def _no_list(self, error: APIStatusError) -> Failure:
        if error.status_code in (401, 403):
            which = "this key" if self.key else "calls without a key"
            return Failure(
                f"the gateway at {self.base} refuses {which} ({error.status_code}): say --key KEY or set SPANGATE_KEY; "
                "`spangate keys new TEAM` makes one"
            )
        return Failure(f"{self.base}/v1/models answers with status {error.status_code}: is that a gateway?")

    def _chosen(self, listed: Sequence[str], wanted: Sequence[str]) -> list[str]:
        if wanted:
            return list(wanted)
        if not listed:
            told = f"the gateway at {self.base} lists no model for {'this key' if self.key else 'calls without a key'}"
            raise Failure(f"{told}: `spangate check -v` shows what a team may use; or say --model NAME")
        return [name for name in listed if not _NO_CHAT.search(name)][:MOST] or list(listed)[:1]

    async def whole(self, model: str) -> Came:
        self.page.step(f"{model}, whole")
        began = time.monotonic()
        try:
            raw = await self.client.chat.completions.with_raw_response.create(**asked(model))
            answer: Any = raw.parse()
            self.page.said(plain(answer.choices[0].message.content or "(no text)"))
            came = Came(200, time.monotonic() - began, ours(raw.headers), tokens(answer.usage))
        except OpenAIError as error:
            came = failed(error, time.monotonic() - began)
        except (AttributeError, IndexError, TypeError):
            came = Came(200, time.monotonic() - began, {}, error="the answer is no chat completion")
        return self._told(came)

    async def streamed(self, model: str) -> Came:
        self.page.step(f"{model}, as a stream")
        began = time.monotonic()
        usage = None
        try:
            raw = await self.client.chat.completions.with_raw_response.create(
                **asked(model), stream=True, stream_options={"include_usage": True}
            )
            async with raw.parse() as chunks:
                async for chunk in chunks:
                    usage = chunk.usage or usage
                    for choice in chunk.choices:
                        if choice.delta.content:
                            self.page.word(plain(choice.delta.content))
            came = Came(200, time.monotonic() - began, ours(raw.headers), tokens(usage))
        except OpenAIError as error:
            came = failed(error, time.monotonic() - began)
        self.page.end_of_words()
        return self._told(came)

    def _told(self, came: Came) -> Came:
        if came.error:
            self.page.facts([("error", came.error)])
        used = f", {came.tokens}" if came.tokens else ""
        self.page.facts([("status", f"{came.status or 'none'} in {show_seconds(round(came.seconds, 3))}{used}"), *came.headers.items()])
        return came


def asked(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": QUESTION}]}


def ours(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of an answer that the gateway put there."""
    return {name: plain(value) for name, value in headers.items() if name == "x-request-id" or name.startswith("x-spangate-")}


def tokens(usage: Any) -> str:
    return f"{usage.prompt_tokens:,}+{usage.completion_tokens:,} tokens" if usage else ""


def failed(error: OpenAIError, seconds: float) -> Came:
    """What became of a call that wasn't answered, in the gateway's words."""
    told: Any = getattr(error, "body", None)
    words = plain(" ".join(str(told.get("message") if isinstance(told, dict) and told.get("message") else error).split()))[:500]
    if isinstance(error, APIStatusError):
        return Came(error.status_code, seconds, ours(error.response.headers), error=words)
    return Came(0, seconds, {}, error=words)
