"""What a request holds, seen from outside: bytes of text, images, sound, files, and the names of the tools that it offers.

Everything is found by looking for marks among the bytes: a body of a mebibyte takes well under a millisecond, whatever is in it, and
nothing of it is decoded but names. Inside of a string every quote is escaped, so that no text can be taken for a mark.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from math import ceil
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from ..call.body import Body
from ..call.call import Call
from ..call.chain import Next, Policy, pulling
from ..call.events import Event
from .pictures import LOOKED, Image, size_of, tokens_of

FIELDS = ("messages", "prompt", "suffix", "input", "instructions", "system", "tools", "functions", "response_format", "text")
"""What counts as input, of any operation. Of a field that an operation doesn't have nobody makes use, and it costs its sender."""
_BEARING = frozenset({"messages", "prompt", "input", "system"})  # of them, where images and such may stand

BYTES_A_TOKEN = 4
SOUND_BYTES_A_TOKEN = 400  # of base64: a tenth of a second of compressed speech
FILE_BYTES_A_TOKEN = 64  # of base64: a page of a document has some tens of kilobytes, and is some thousand tokens
MOST_IMAGES = 128  # that are looked at; more of them are counted as text, which is more than they are
MOST_MARKS = 1024  # of another kind
MOST_OBJECTS = 8 << 10  # in a list of tools that is read
_WORTH_KEEPING = 8 << 10  # bytes from which on a second look costs more than to remember the first
_LONG = 256 << 10  # bytes from which on a look is more than one step

_BEFORE_DATA = re.compile(rb'"(?:url|image_url|file_data|data)"\s*:\s*"data:([a-z]{1,16})\\?/[\w.+-]{1,64}(?:;[\w=.+-]{1,64}){0,4}\Z')
_LOW_BEFORE = re.compile(rb'"detail"\s*:\s*"low"\s*,\s*"url"')
_LOW_AFTER = re.compile(rb'"\s*,\s*"detail"\s*:\s*"low"')
_COLON = re.compile(rb"\s*:")
_SOUND = re.compile(rb'\s*:\s*\{(?:\s*"format"\s*:\s*"\w{1,16}"\s*,)?\s*"data"\s*:\s*"')
_NUMBERS = re.compile(rb"\[\s*(?:\[\s*)?[0-9]")


MORE = b"more"

_T = TypeVar("_T")


class Content(msgspec.Struct, frozen=True):
    """`text`: bytes of it, with the JSON around it. `numbers`: bytes of token ids, where these were sent. `sound` and `files` are
    bytes of base64. `more`: there may be images that were not found, for there are so many."""

    text: int = 0
    images: tuple[Image, ...] = ()
    numbers: int = 0
    sound: int = 0
    files: int = 0
    more: bool = False

    @property
    def plain(self) -> bool:
        """It is text alone."""
        return not (self.images or self.numbers or self.sound or self.files)

    @property
    def text_tokens(self) -> int:
        return ceil(self.text / BYTES_A_TOKEN)

    def other_tokens(self, model: str) -> int:
        """What is no text, at its most."""
        images = sum([tokens_of(image, model) for image in self.images])
        # An id and its comma are two bytes or more.
        return images + ceil(self.numbers / 2) + ceil(self.sound / SOUND_BYTES_A_TOKEN) + ceil(self.files / FILE_BYTES_A_TOKEN)

    def tokens(self, model: str) -> int:
        """All of it, by rule of thumb."""
        return self.text_tokens + self.other_tokens(model)


_remembered: WeakKeyDictionary[Body, Content] = WeakKeyDictionary()


def content_of(call: Call) -> Content:
    """What `call` holds. Several rules ask this of one call: a long body is looked at once."""
    body = call.body
    if _length(body) < _WORTH_KEEPING:
        return _ended(_looking(body))
    found = _remembered.get(body)
    if found is None:
        found = _remembered[body] = _ended(_looking(body))
    return found


async def look_at(call: Call) -> None:
    """See to it that `content_of` answers at once, without holding up the loop: whoever may await does this first."""
    body = call.body
    if not unseen(call):
        return
    looking = _looking(body)
    while True:
        try:
            looking.send(None)
        except StopIteration as ended:
            _remembered[body] = ended.value
            return
        await asyncio.sleep(0)


def unseen(call: Call) -> bool:
    """Whether a look would take long, for it is a long body, and nobody has had one."""
    return _length(call.body) >= _LONG and call.body not in _remembered


async def after_look(call: Call, layer: Policy, next: Next) -> AsyncIterator[Event]:
    """What `layer` makes of a call of which `content_of` answers at once: for layers that may not await themselves."""
    await look_at(call)
    async with pulling(layer(call, next)) as events:
        async for event in events:
            yield event


def _length(body: Body) -> int:
    return sum([body.size(name) for name in FIELDS])


def _ended(looking: Generator[None, None, Content]) -> Content:
    while True:
        try:
            looking.send(None)
        except StopIteration as ended:
            found: Content = ended.value
            return found


def _looking(body: Body) -> Generator[None, None, Content]:
    """A look at a body, which rests between two steps that each go through all of a field."""
    text = numbers = sound = files = 0
    more = False
    images: list[Image] = []
    for name in FIELDS:
        size = body.size(name)
        if not size:
            continue
        raw = bytes(body.fields[name])
        if name in ("input", "prompt") and _NUMBERS.match(raw):
            numbers += size
            continue
        text += size
        for found in _attached(raw) if name in _BEARING else ():
            if found is None:
                yield
                continue
            text -= found.length
            if found.image is not None:
                images.append(found.image)
            elif found.kind == b"audio":
                sound += found.length
            elif found.kind == MORE:
                more = True
            else:
                files += found.length
    return Content(text, tuple(images), numbers, sound, files, more)


class _Attached(NamedTuple):
    """What in a field is no text: bytes of base64, the image if it is one, else what it is; or that there may be MORE."""

    length: int
    image: Image | None = None
    kind: bytes = b""


def _attached(raw: bytes) -> Iterator[_Attached | None]:
    """All of them, with None where a step has ended."""
    inside = 0
    for at in _marks(raw, b";base64,", MOST_IMAGES):
        if at < 0:
            yield _Attached(0, kind=MORE)
            break
        before = raw[max(0, at - 256) : at]
        found = _BEFORE_DATA.search(before)
        if found is None:
            continue
        begin, end = at + 8, raw.find(b'"', at)
        if found[1] != b"image":
            yield _Attached(end - begin, kind=found[1])
            continue
        inside += 1
        if inside % 16 == 0:
            yield None
        low = bool(_LOW_AFTER.match(raw, end, end + 64) or _LOW_BEFORE.search(before))
        yield _Attached(end - begin, Image(*size_of(raw[begin : min(end, begin + LOOKED)]), low))
    yield None
    marks = [at for at in _marks(raw, b'"image_url"', MOST_MARKS) if at < 0 or _COLON.match(raw, at + 11)]
    if marks[-1:] == [-1]:
        yield _Attached(0, kind=MORE)
        marks.pop()
    yield from [_Attached(0, Image())] * (len(marks) - inside)
    yield None
    for at in _marks(raw, b'"input_audio"', MOST_MARKS):
        if begins := at >= 0 and _SOUND.match(raw, at + 13):
            yield _Attached(raw.find(b'"', begins.end()) - begins.end(), kind=b"audio")


def _marks(raw: bytes, mark: bytes, most: int) -> Iterator[int]:
    """Where the mark stands, at most so often; -1 at the end where it stands more often."""
    at = raw.find(mark)
    for _ in range(most):
        if at < 0:
            return
        yield at
        at = raw.find(mark, at + len(mark))
    if at >= 0:
        yield -1


class _Named(msgspec.Struct):
    name: str = ""


class _Tool(msgspec.Struct):
    type: str = ""
    name: str = ""
    function: _Named | None = None
    custom: _Named | None = None

    def called(self) -> str:
        named = self.function or self.custom
        return (named.name if named else self.name) or self.type


_tools = msgspec.json.Decoder(list[_Tool] | None).decode
_functions = msgspec.json.Decoder(list[_Named] | None).decode


def tool_names(body: Body) -> list[str]:
    """The tools that a request offers, by name; those of the provider's own by their type, such as `web_search`.

    Raises:
        ValueError: they can't be told: no list, one without a name, or more than anybody offers.
    """
    names = [each.called() for each in _read(body, "tools", _tools) or ()]
    names += [each.name for each in _read(body, "functions", _functions) or ()]
    if "web_search_options" in body:
        names.append("web_search")
    if not all(names):
        raise ValueError("a tool without a name")
    return names


def _read(body: Body, name: str, decode: Callable[[bytes], _T]) -> _T | None:
    if name not in body:
        return None
    raw = bytes(body.fields[name])
    if len(raw) > MOST_OBJECTS and raw.count(b"{") > MOST_OBJECTS:
        raise ValueError("more tools than are looked at")
    return decode(raw)  # what it raises is a ValueError
