"""Matches a script and yields events: the scripted provider and the agent's ScriptedModel stand on it.

What a rule may say is in rules.py, what it looks like on the wire in shapes.py; here it is chosen, timed, and made to fail. The events
are those that a provider of OpenAI's dialect yields: primed, in the same chunks, with the same errors.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from . import sse
from .call import Call
from .errors import UpstreamError, UpstreamIncomplete
from .events import Closed, Delta, Event, Opened
from .rules import Refusal, Reset, Rule, ScriptMistakes, Stall, problems_of
from .shapes import Asked, Speech, model_of, vectors

__all__ = ["AnyRule", "Chooser", "Rule", "Script", "ScriptMistakes"]

Chooser = Callable[[Call], Rule | None]
AnyRule = Rule | Mapping[str, Any] | Chooser
OnHead = Callable[[int, Mapping[str, str]], Mapping[str, str]]

ECHO = Rule()
LATE = 0.05  # seconds that a late usage chunk waits
MOST_CHOICES, MOST_INPUTS = 128, 2048  # as OpenAI takes: what multiplies an answer must not use up the memory
MOST_WRITTEN = 16 << 20  # bytes of a script's file
MOST_SAID = 64 << 20  # characters of all choices together
_PASSED_HEADERS = ("retry-after", "retry-after-ms")


def _nobody(status: int, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Who is told of heads where nobody asks."""
    return headers


class Script:
    """Rules in order. It counts how often each has answered, so it belongs to one provider.

    A rule may also be a function: given the call, it returns the rule that answers it, or None.
    """

    def __init__(self, rules: Iterable[AnyRule] = ()) -> None:
        """
        Raises:
            ScriptMistakes: a rule says what no rule can say.
        """
        read, problems = [], []
        for number, rule in enumerate(rules, 1):
            try:
                read.append(rule if isinstance(rule, Rule) or callable(rule) else Rule.model_validate(rule))
            except ValidationError as error:
                problems += problems_of(error, number)
        if problems:
            raise ScriptMistakes(problems)
        self.rules: Sequence[Rule | Chooser] = tuple(read)
        self._answered = [0] * len(read)

    @classmethod
    def parse(cls, listed: object) -> Script:
        """A script from plain values, as they stand in YAML.

        Raises:
            ScriptMistakes: it is no list of rules.
        """
        if not isinstance(listed, list):
            raise ScriptMistakes(["a script is a list of rules, as in `- answer: {text: Hello}`"])
        return cls(listed)

    @classmethod
    def load(cls, path: Path) -> Script:
        """The script in a YAML file.

        Raises:
            ScriptMistakes: it can't be read, or not used.
        """
        try:
            listed = yaml.safe_load(_content(path))
        except OSError as error:
            raise ScriptMistakes([f"{path}: {(error.strerror or 'cannot be read').lower()}"]) from None
        except RecursionError:
            raise ScriptMistakes([f"{path}: nested too deep"]) from None
        except (yaml.YAMLError, ValueError) as error:  # a value: what is not UTF-8, or a 30th of February
            mark = getattr(error, "problem_mark", None)
            told = error if type(error) is ValueError else "it is not UTF-8"
            place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else f"{path}"
            raise ScriptMistakes([f"{place}: not YAML: {getattr(error, 'problem', None) or told}"]) from None
        try:
            return cls.parse([] if listed is None else listed)
        except ScriptMistakes as mistakes:
            raise ScriptMistakes([f"{path}: {problem}" for problem in mistakes.problems]) from None

    @property
    def models(self) -> list[str]:
        """The models that its rules name, without patterns."""
        named = [rule.when.model for rule in self.rules if isinstance(rule, Rule)]
        return sorted({name for name in named if "*" not in name})

    def match(self, call: Call) -> Rule:
        """The rule that answers `call`, which counts as answered; an echo if none does."""
        return self._match(call, Asked.of(call))

    def _match(self, call: Call, asked: Asked) -> Rule:
        model, attempt = model_of(call), len(call.seen.attempts) or 1
        for number, each in enumerate(self.rules):
            rule = each if isinstance(each, Rule) else each(call)
            if rule is None or self._answered[number] == rule.times or not rule.when.fits(model, attempt, asked.texts):
                continue
            self._answered[number] += 1
            return rule
        return ECHO

    def answer(
        self, call: Call, *, provider: str = "", serial: int = 1, created: int = 0, head: OnHead = _nobody
    ) -> AsyncGenerator[Event, None]:
        """The events of the answer to `call`. `serial` makes its id, `created` is its time in seconds. `head` is told its status and
        headers, and says which of them an error keeps.

        Raises:
            ProviderFault: at the first pull or later, where the rule says so.
        """
        asked = Asked.of(call)
        rule = _beyond(call, asked) or self._match(call, asked)
        speech = Speech.of(rule, call, asked, serial=serial, created=created)
        if call.head.stream and call.op != "embeddings":
            return _stream(rule, speech, provider, head)
        return _whole(rule, speech, call, provider, head)


def _beyond(call: Call, asked: Asked) -> Rule | None:
    """The refusal of a call that asks for more than anybody would say."""
    given = call.body.get("input") if call.op == "embeddings" else None
    inputs = len(given) if isinstance(given, list) and given and not isinstance(given[0], int) else 1
    if call.head.n > MOST_CHOICES or call.head.n * len(asked.last) > MOST_SAID:
        return Rule(fault=Refusal(status=400, message=f"'n' must be at most {MOST_CHOICES}, and less for a long text.", param="n"))
    if inputs > MOST_INPUTS:
        return Rule(fault=Refusal(status=400, message=f"'input' must be at most {MOST_INPUTS} inputs.", param="input"))
    return None


async def _stream(rule: Rule, speech: Speech, provider: str, head: OnHead) -> AsyncGenerator[Event, None]:
    _begin(rule, head)
    opened = Opened(speech.envelope.model, provider, envelope=speech.envelope)
    answer, last = rule.answer, _last(rule)
    said = 0
    for chunks in speech.content():
        await _pause(answer.every if said else answer.first)
        if said == last:
            break
        if not said:
            yield opened
        said += 1
        yield Delta.saying(*chunks)
    await _fail_late(rule)
    if not said:
        await _pause(answer.first)
        yield opened
    yield Delta.saying(*speech.end(opening=not said))
    await _pause(LATE if rule.usage == "late" else 0)
    if speech.usage_frame and rule.usage not in ("omit", "cumulative"):
        for _ in range(2 if rule.usage == "twice" else 1):
            yield Delta.saying(speech.usage_chunk())
    yield _closed(rule, speech, sse.DONE)


async def _whole(rule: Rule, speech: Speech, call: Call, provider: str, head: OnHead) -> AsyncGenerator[Event, None]:
    _begin(rule, head)
    answer = rule.answer
    if answer.every or answer.first:
        await _pause(answer.first + answer.every * max(sum(1 for _ in speech.content()) - 1, 0))
    await _fail_late(rule)
    usage = rule.usage != "omit"
    body = vectors(call, speech, usage=usage) if call.op == "embeddings" else speech.whole(usage=usage)
    yield Opened(speech.envelope.model, provider, stream=False, content_type="application/json")
    yield Delta(json.dumps(body, separators=(",", ":")).encode("ascii"), sse=False)
    yield _closed(rule, speech, None)


def _content(path: Path) -> bytes:
    """
    Raises:
        OSError: it can't be read, is no file, or is none of a script's size.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a pipe that nobody writes to, a device without an end
            raise OSError(errno.EINVAL, "it is not a file")
        content = file.read(MOST_WRITTEN + 1)
    if len(content) > MOST_WRITTEN:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_WRITTEN >> 20} MiB")
    return content


def _closed(rule: Rule, speech: Speech, tail: bytes | None) -> Closed:
    finish = None if speech.op == "embeddings" else speech.finish
    return Closed(None if rule.usage == "omit" else speech.usage, finish, tail)


def _last(rule: Rule) -> int | None:
    """After how many pieces the answer breaks off; None: not in the middle."""
    fault = rule.fault
    return fault.reset_after if isinstance(fault, Reset) else fault.stall_after if isinstance(fault, Stall) else None


def _begin(rule: Rule, head: OnHead) -> None:
    """Tell of the head, and fail where nothing comes after it."""
    fault = rule.fault
    if isinstance(fault, Refusal):
        raise refusal(fault.model_copy(update={"headers": head(fault.status, fault.headers)}))
    head(200, rule.answer.headers)
    if fault == "error_in_200":
        raise UpstreamError("The script answers with an error.", kind="server_error")
    if fault == "empty":
        raise UpstreamIncomplete("The provider's answer is empty.")


async def _fail_late(rule: Rule) -> None:
    """What goes wrong once all was said that comes before it."""
    if isinstance(rule.fault, Stall):
        await asyncio.get_running_loop().create_future()
    if isinstance(rule.fault, Reset) or rule.fault == "truncate":
        raise UpstreamIncomplete("The provider's answer stopped before its end.")


async def _pause(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)


def refusal(fault: Refusal) -> UpstreamError:
    """The error that a provider's status becomes."""
    status = fault.status
    kind = "server_error" if status >= 500 else "requests" if status == 429 else "invalid_request_error"
    code = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}.get(status)
    return UpstreamError(
        fault.message or f"The script answers with status {status}.",
        status=status,
        kind=fault.type or kind,
        own_code=fault.code or code,
        param=fault.param,
        headers={name.lower(): value for name, value in fault.headers.items() if name.lower() in _PASSED_HEADERS},
        retryable=status in (408, 409, 429) or status >= 500,
    )
