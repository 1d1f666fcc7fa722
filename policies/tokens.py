"""How many tokens a call will be, before anybody knows: its input by its bytes, its output by what is usual; both mended by what
providers report.

    estimate = tokens.input(call)          # at once, on the loop
    hold(estimate.upper + tokens.output(team, model))
    tokens.learn(call, usage, estimate)    # once the provider has told

    tokens.asked(call), tokens.said(model, samples)    # or where the provider doesn't tell

`count` is exact where a vocabulary is to be had, and takes its time in a thread. What an answer's end can't wait for is counted at once: a
short text whole, of a long one samples. One `Tokens` a process: what it learnt outlives a reload. It holds numbers alone, and not more of
them than there is room for, whatever models are asked for.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from ..call.body import Body
from ..call.call import Call
from ..call.events import Usage
from ..call.spoken import BYTES_A_TOKEN, Sample, pieces_of, text_of
from ..call.spoken import tokens_of as spoken_tokens
from .calibration import ROOM, Kept, Ratio, Usual
from .content import FIELDS, content_of, look_at, unseen
from .counting import countable, counted
from .vocabulary import Vocabulary, count, encoding_of

if TYPE_CHECKING:
    from tiktoken import Encoding

T = TypeVar("T")

FEW = 8  # answers of a team and model from which on they say what is usual
WARM = 256  # answers that are all learnt from
PAUSE = 0.02  # seconds from one answer that is learnt from to the next, later: more of them make no figure better, and cost each call
UNKNOWN_OUTPUT = 1024  # tokens of an answer of which nothing is known
LONGEST_TEXT = 4 << 20  # characters that are counted
SHORT = 4 << 10  # bytes that are counted at once, a short text whole, of a longer one so much: of some texts it takes a millisecond
_BASE64 = re.compile(rb"[A-Za-z0-9+/=]+")
PATIENCE = 1.0  # seconds that an answer waits for what it takes to count it
MOST_WAITING = 64  # counts at once; who comes then is told nothing, and goes by the estimate


class Estimate(msgspec.Struct, frozen=True):
    """The input of a call, in tokens: what it will most likely be, and what it hardly ever exceeds: never less than a token for each
    four bytes of its text. `text`: its text by rule of thumb, to learn from; 0 where it isn't text alone."""

    expected: int
    upper: int
    text: int = 0


class Errors(msgspec.Struct):
    """How good estimates were so far, in tokens: of `calls`, all that was `estimated` and `used`, and the part of `used` that was
    `beyond` an upper estimate."""

    calls: int = 0
    estimated: int = 0
    used: int = 0
    beyond: int = 0

    def add(self, estimated: int, used: int, most: int) -> float:
        self.calls += 1
        self.estimated += estimated
        self.used += used
        self.beyond += max(used - most, 0)
        return (estimated - used) / max(used, 1)


class Missed(msgspec.Struct, frozen=True):
    """By how much the estimates of one call missed, as a share of what was used: 0.5 is half as much again, -0.5 half of it. None: the
    provider didn't tell."""

    input: float | None = None
    output: float | None = None


class Tokens:
    """Estimates that learn. Made on first need: its vocabularies, and a thread to count in."""

    def __init__(self, vocabulary: Vocabulary | None = None, *, room: int = ROOM) -> None:
        self._vocabulary = vocabulary or Vocabulary()
        self._ratios = Kept(partial(Ratio, 1.0, 1 / 8), room)
        self._usual = Kept(Usual, room)
        self._counts: WeakKeyDictionary[Body, int] = WeakKeyDictionary()
        self._loading: set[str] = set()
        self._tasks: set[asyncio.Task[object]] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._answers = 0
        self._learns_at = 0.0
        self._unknown = Ratio(1.0, 1 / 8)
        self.input_errors = Errors()
        self.output_errors = Errors()

    # estimates

    def input(self, call: Call) -> Estimate:
        """What `call` will be, for its target if that is chosen, else by the name that was asked for."""
        content, ratio = content_of(call), self._ratio(call)
        text = spoken_tokens(content.text)
        expected, upper = ceil(text * ratio.mean), text if ratio.upper <= 1.0 else ceil(text * ratio.upper)
        if content.plain:
            return Estimate(expected, upper, text)
        other = content.other_tokens(_model(call))
        return Estimate(expected + other, upper + other)

    def output(self, team: str, model: str, *, share: float = 0.95) -> int:
        """What one answer (of `n`) to this team by the model of this name usually stays within; `share` of them do."""
        for name in ((team, model), ("", model)):
            usual = self._usual.get(*name)
            if usual is not None and usual.known >= FEW:
                return usual.below(share)
        return UNKNOWN_OUTPUT

    def _ratio(self, call: Call) -> Ratio:
        target = call.target
        for name in ((target.provider, target.model), (target.provider,)) if target else (("", call.model),):
            ratio = self._ratios.get(*name)
            if ratio is not None and ratio.known:
                return ratio
        return self._unknown

    # what was so

    def due(self, now: float) -> bool:
        """Whether to learn from the answer that came now (in seconds): from the first of all, later from some each second."""
        self._answers += 1
        if self._answers > WARM and now < self._learns_at:
            return False
        self._learns_at = now + PAUSE
        return True

    def learn(self, call: Call, usage: Usage, estimate: Estimate | None = None, *, cut: bool = False) -> Missed:
        """`usage` is what the provider told of `call`, which went to its target. `estimate`: what was held for it. `cut`: the answer ended
        where its cap was, so that it would have been longer: else a cap made of what is usual could only shrink."""
        if usage.source != "provider":
            return Missed()
        missed_input = missed_output = None
        if usage.unknown != "input":
            held = estimate or self.input(call)
            missed_input = self.input_errors.add(held.expected, usage.input, held.upper)
            self._learn_input(call, usage.input, held.text)
        if usage.unknown != "output" and call.op != "embeddings":
            each = ceil(usage.output / max(call.head.n, 1))
            usual = self.output(call.caller.team, call.model)
            missed_output = self.output_errors.add(usual, each, usual)
            for name in {(call.caller.team, call.model), ("", call.model)}:
                if known := self._usual.at(*name):
                    known.learn(each * 2 if cut else each)
        return Missed(missed_input, missed_output)

    def _learn_input(self, call: Call, used: int, text: int) -> None:
        target = call.target
        if not text:
            return  # the tables' error is not the text's
        names = [("", call.model), *(((target.provider, target.model), (target.provider,)) if target else ())]
        for name in names:
            if ratio := self._ratios.at(*name):
                ratio.learn(text, used)

    # counts

    async def count(self, call: Call) -> int | None:
        """The input of `call`, text and tools by the vocabulary of its model; None where it can't be counted: it is too long, too much
        of it waits already, or there is no vocabulary."""
        await look_at(call)
        model = _model(call)
        found = await self._in_thread(partial(_counted, self._vocabulary, call.body, model))
        return None if found is None else found + content_of(call).other_tokens(model)

    async def count_text(self, text: str, model: str) -> int | None:
        """A text alone, such as that of an answer."""
        return await self._in_thread(partial(_counted_text, self._vocabulary, text, model)) if len(text) <= LONGEST_TEXT else None

    # what a provider didn't tell

    async def ready(self, model: str) -> None:
        """Have the vocabulary, if that takes no more than a moment."""
        name = encoding_of(model)
        if self._vocabulary.at_hand(name) is None and not self._vocabulary.can_not_be_had(name):
            await self._for_a_moment(self._in_thread(partial(self._vocabulary.load, name)))

    async def prepare(self, call: Call) -> None:
        """Have the vocabulary, and a long request counted whole, if that takes no more than a moment."""
        await self.ready(_model(call))
        if _length(call.body) > SHORT and call.body not in self._counts:
            await self._for_a_moment(self._remember(call))

    async def _for_a_moment(self, work: Coroutine[Any, Any, object]) -> None:
        """What isn't done by then goes on without whoever waited."""
        task = asyncio.get_running_loop().create_task(work, name="spangate.tokens")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task], timeout=PATIENCE)

    async def _remember(self, call: Call) -> None:
        if (found := await self.count(call)) is not None:
            self._counts[call.body] = found

    def asked(self, call: Call) -> int:
        """The input of `call`, at once: its estimate, where it can't be counted."""
        model, body = _model(call), call.body
        known = self._counts.get(body)
        if known is not None:
            return known
        encoding, length = self._at_hand(model), _length(body)
        if encoding is not None and length <= SHORT:
            return counted(body, partial(_count, encoding)) + content_of(call).other_tokens(model)
        content = None if unseen(call) else content_of(call)
        pieces = _pieces(body) if encoding is not None else []
        texts = [piece for piece in pieces if not _BASE64.fullmatch(piece)]
        if encoding is None or not texts:
            return spoken_tokens(length) if content is None else self.input(call).expected
        tokens, _ = _sampled(texts, encoding)
        text = length * len(texts) / len(pieces) if content is None else content.text
        return round(tokens * text / sum(map(len, texts))) + (0 if content is None else content.other_tokens(model))

    def said(self, model: str, samples: Sequence[Sample]) -> int | None:
        """A text, at once; None where it can't be counted."""
        encoding = self._at_hand(model)
        if encoding is None:
            return None
        while len(samples) > 1 and sum([len(piece) for sample in samples for piece in sample.pieces]) > SHORT:
            samples = [_both(*samples[first : first + 2]) for first in range(0, len(samples), 2)]
        found = [(sample.stands_for, *_sampled(sample.pieces, encoding)) for sample in samples]
        return round(sum([text * tokens / size if size else text / BYTES_A_TOKEN for text, tokens, size in found]))

    def _at_hand(self, model: str) -> Encoding | None:
        """The vocabulary, if it is loaded; else it will be, for the next."""
        name = encoding_of(model)
        found = self._vocabulary.at_hand(name)
        if found is None and not self._vocabulary.can_not_be_had(name) and name not in self._loading:
            self._loading.add(name)
            self._threads().submit(self._vocabulary.load, name)
        return found

    def _threads(self) -> ThreadPoolExecutor:
        self._thread = self._thread or ThreadPoolExecutor(1, "tokens")
        return self._thread

    async def _in_thread(self, work: Callable[[], T]) -> T | None:
        if self._waiting >= MOST_WAITING:
            return None
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads(), work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """No more counts; those that wait are given up."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None


def _model(call: Call) -> str:
    return call.target.model if call.target else call.model


def _length(body: Body) -> int:
    return sum([body.size(name) for name in FIELDS])


def _pieces(body: Body) -> list[bytes]:
    """From all over a long request, of each field as much as it is of the whole."""
    length = _length(body)
    fields = [(memoryview(body.fields[name]), SHORT * body.size(name) // length) for name in FIELDS if name in body]
    return [piece for field, most in fields for piece in pieces_of(field, most)]


def _both(one: Sample, other: Sample | None = None) -> Sample:
    """The first stands for the second too."""
    return one if other is None else Sample(one.pieces or other.pieces, one.stands_for + other.stands_for)


def _sampled(pieces: Sequence[bytes], encoding: Encoding) -> tuple[int, int]:
    """How many tokens the pieces are, and how many bytes of text they say."""
    texts = [text_of(piece) for piece in pieces]
    return sum([count(text, encoding) for text in texts]), sum([len(text.encode("utf-8", "replace")) for text in texts])


def _counted(vocabulary: Vocabulary, body: Body, model: str) -> int | None:
    if not countable(body):
        return None
    time.sleep(0)  # the loop's turn: to look at a long body and to decode it are two steps
    encoding = vocabulary.load(encoding_of(model))
    return None if encoding is None else counted(body, partial(_count, encoding))


def _counted_text(vocabulary: Vocabulary, text: str, model: str) -> int | None:
    encoding = vocabulary.load(encoding_of(model))
    return None if encoding is None else count(text, encoding)


def _count(encoding: Encoding, text: str) -> int:
    return count(text, encoding)
