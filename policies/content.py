"""What a request holds, seen from outside: bytes of text, images, sound, files, and the names of the tools that it offers.

Everything is found by looking for marks among the bytes: a body of a mebibyte takes well under a millisecond, whatever is in it, and
nothing of it is decoded but names. Inside of a string every quote is escaped, so that no text can be taken for a mark.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from math import ceil
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from ..call.body import Body
from ..call.call import Call
from ..call.chain import Next, Policy, pulling
from ..call.events import Event
from ..call.spoken import tokens_of as spoken_tokens
from .pictures import LOOKED, Image, size_of, tokens_of

FIELDS = ("messages", "prompt", "suffix", "input", "instructions", "system", "tools", "functions", "response_format", "text")
"""What counts as input, of any operation. Of a field that an operation doesn't have nobody makes use, and it costs its sender."""
_COUNTED = frozenset(FIELDS)
_BEARING = frozenset({"messages", "prompt", "input", "system"})  # of them, where images and such may stand

SOUND_BYTES_A_TOKEN = 400  # of base64: a tenth of a second of compressed speech
FILE_BYTES_A_TOKEN = 64  # of base64: a page of a document has some tens of kilobytes, and is some thousand tokens
MOST_IMAGES = 128  # that are looked at; more of them are counted as text, which is more than they are
MOST_MARKS = 1024  # of another kind
MOST_OBJECTS = 8 << 10  # and lists, in a list of tools that is read
MOST_TOOLS = 256  # twice as many as OpenAI takes
LONGEST_TOOLS = 256 << 10  # bytes of all tools of a request that are read
_WORTH_KEEPING = 8 << 10  # bytes from which on a second look costs more than to remember the first
_LONG = 256 << 10  # bytes from which on a look is more than one step

_BEFORE_DATA = re.compile(rb'"(?:url|image_url|file_data|data)"\s*:\s*"(data):([a-z]{1,16})\\?/[\w.+-]{1,64}(?:;[\w=.+-]{1,64}){0,4}\Z')
_IMAGE = re.compile(rb'"image(?P<kind>s|_url|_file)?"(?P<key>\s*:(?!\s*(?:null|\[\s*\])))?')
_TYPE = re.compile(rb'"type"\s*:\s*\Z')
_ADDRESS = re.compile(rb'"image_url"\s*:\s*(?P<object>\{\s*(?:"detail"\s*:\s*"(?P<detail>\w{1,16})"\s*,\s*)?"url"\s*:\s*)?"(?P<url>data:)')
_ADDRESS_ENDS = re.compile(rb'"\s*(?:,\s*"detail"\s*:\s*"(?P<detail>\w{1,16})"\s*)?\}')
_COLON = re.compile(rb"\s*:")
_HIDING = (b"\\u004", b"\\u005", b"\\u006", b"\\u007")  # escapes of letters, which nobody needs
_NAME = 64  # bytes of a name or type, written in escapes
_SOUND = re.compile(rb'\s*:\s*\{(?:\s*"format"\s*:\s*"\w{1,16}"\s*,)?\s*"data"\s*:\s*"')
_NUMBERED = ("input", "prompt")
_NUMBERS = re.compile(rb"\[\s*(?:\[\s*)?[0-9]")


MORE = b"more"


class Content(msgspec.Struct, frozen=True):
    """`text`: bytes of it, with the JSON around it. `numbers`: token ids, where these were sent. `sound` and `files` are
    bytes of base64. `more`: there may be images that were not counted, for there are so many."""

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
    def most_images(self) -> int:
        """How many images there are; where that isn't known, more than anybody sends."""
        return len(self.images) + (MOST_MARKS if self.more else 0)

    @property
    def text_tokens(self) -> int:
        return spoken_tokens(self.text)

    def other_tokens(self, model: str) -> int:
        """What is no text, at its most."""
        images = sum([tokens_of(image, model) for image in self.images])
        return images + self.numbers + ceil(self.sound / SOUND_BYTES_A_TOKEN) + ceil(self.files / FILE_BYTES_A_TOKEN)

    def tokens(self, model: str) -> int:
        """All of it, by rule of thumb."""
        return self.text_tokens + self.other_tokens(model)


_remembered: WeakKeyDictionary[Body, Content] = WeakKeyDictionary()


def content_of(call: Call) -> Content:
    """What `call` holds. Several rules ask this of one call: a long body is looked at once."""
    body = call.body
    length = _length(body)
    if length < _WORTH_KEEPING:
        return Content(length) if _is_plain(body) else _ended(_looking(body))
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
    body = call.body
    short = body.raw is not None and len(body.raw) < _LONG  # as nearly all are: no need to add up its fields
    return not short and _length(body) >= _LONG and body not in _remembered


async def after_look(call: Call, layer: Policy, next: Next) -> AsyncIterator[Event]:
    """What `layer` makes of a call of which `content_of` answers at once: for layers that may not await themselves."""
    await look_at(call)
    async with pulling(layer(call, next)) as events:
        async for event in events:
            yield event


def _length(body: Body) -> int:
    length = 0
    for name, raw in body.fields.items():
        if name in _COUNTED:
            length += len(raw)
    return length


def _is_plain(body: Body) -> bool:
    """Whether a short body holds text alone, as most do; where that takes a look to tell, it says no."""
    raw, fields = body.raw, body.fields
    if raw is None or len(raw) > _WORTH_KEEPING:
        raw = b"".join([bytes(fields[name]) for name in _BEARING if name in fields])
    if b";base64," in raw or b'"image' in raw or b'"input_audio"' in raw:
        return False
    if b"\\u00" in raw and any(escape in raw for escape in _HIDING):
        return False
    if fields.keys().isdisjoint(_NUMBERED):
        return True
    return not any(_NUMBERS.match(bytes(fields[name])) for name in _NUMBERED if name in fields)


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
        if name in _NUMBERED and _NUMBERS.match(raw):
            numbers += raw.count(b",") + 1
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
    inlined: dict[int, tuple[int, int]] = {}  # by where the data URL of an image begins: its base64
    for at in _marks(raw, b";base64,", MOST_IMAGES):
        if at < 0:
            yield _Attached(0, kind=MORE)
            break
        found = _BEFORE_DATA.search(raw[max(0, at - 256) : at])
        if found is None:
            continue
        begin, end = at + 8, raw.find(b'"', at)
        if found[2] == b"image":
            inlined[max(0, at - 256) + found.start(1)] = begin, end
        else:
            yield _Attached(end - begin, kind=found[2])
    yield None
    low: set[int] = set()
    yield from _named_images(raw, inlined, low)
    for number, (at, (begin, end)) in enumerate(inlined.items(), 1):
        if number % 16 == 0:
            yield None
        yield _Attached(end - begin, Image(*size_of(raw[begin : min(end, begin + LOOKED)]), at in low))
    yield None
    yield from _hidden_images(raw)
    yield None
    for at in _marks(raw, b'"input_audio"', MOST_MARKS):
        if begins := at >= 0 and _SOUND.match(raw, at + 13):
            yield _Attached(raw.find(b'"', begins.end()) - begins.end(), kind=b"audio")


def _named_images(raw: bytes, inlined: Mapping[int, tuple[int, int]], low: set[int]) -> Iterator[_Attached | None]:
    """Images that the fields say are there, other than the `inlined`, each of which is the one address of its field. Those of them that
    are asked for in `low` detail are added there."""
    keys: Counter[bytes] = Counter()
    types: Counter[bytes] = Counter()
    addressed = 0
    for number, at in enumerate(_marks(raw, b'"image', MOST_MARKS), 1):
        if number % 128 == 0:
            yield None
        if at < 0:
            yield _Attached(0, kind=MORE)
        elif (found := _IMAGE.match(raw, at)) is None:
            continue
        elif found["key"] is None:
            types[found["kind"] or b""] += _TYPE.search(raw, max(0, at - 32), at) is not None
        else:
            keys[found["kind"] or b""] += 1
            addressed += found["kind"] == b"_url" and _is_inlined(raw, at, inlined, low)
            if found["kind"] == b"s":
                yield _Attached(0, kind=MORE)  # nobody has counted them
    # A part names its kind of image in its type and once more as a field.
    yield from [_Attached(0, Image())] * ((keys | types).total() - addressed)
    yield None


def _is_inlined(raw: bytes, at: int, inlined: Mapping[int, tuple[int, int]], low: set[int]) -> bool:
    """Whether the field at this place has one address, and that is one of those."""
    begins = _ADDRESS.match(raw, at)
    if begins is None or begins.start("url") not in inlined:
        return False
    end = inlined[begins.start("url")][1]
    ends = _ADDRESS_ENDS.match(raw, end)
    if ends is None:
        return begins["object"] is None  # the part goes on
    details = {begins["detail"], ends["detail"]} - {None}
    if details == {b"low"}:
        low.add(begins.start("url"))
    return True


def _hidden_images(raw: bytes) -> Iterator[_Attached | None]:
    """An image for each name or type whose letters are written as escapes: it may be one's. In a text they may stand."""
    if b"\\u00" not in raw:
        return
    for escape in _HIDING:
        yield None
        known = -1
        for number, at in enumerate(_marks(raw, escape, MOST_MARKS), 1):
            if number % 256 == 0:
                yield None
            if at < 0:
                yield _Attached(0, kind=MORE)
                break
            begin, end = raw.rfind(b'"', max(0, at - _NAME), at), raw.find(b'"', at, at + _NAME)
            if begin < 0 or end < 0 or begin == known:
                continue
            known = begin
            if _COLON.match(raw, end + 1) or _TYPE.search(raw, max(0, begin - 32), begin):
                yield _Attached(0, Image())


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


_list = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text = msgspec.json.Decoder(str | None).decode

_OFFERING = ("tools", "functions", "tool_choice", "function_call")
_NAMING = frozenset({"type", "name", "function", "custom", "tools", "allowed_tools"})
_NO_TOOLS = frozenset({"function", "custom", "tool", "allowed_tools", "auto", "any", "none", "required"})
"""Types that say how a tool is named, or how it is chosen, and are none themselves."""
_HOW = frozenset(("type", kind) for kind in _NO_TOOLS)
_MEMBER = re.compile(rb'\s*[{,]\s*"(?:[^"\\]++|\\.)*+"\s*:\s*')

_named: WeakKeyDictionary[Body, tuple[str, ...] | None] = WeakKeyDictionary()


def tool_names(body: Body) -> list[str]:
    """The tools that a request offers or chooses, by every name and type that is said of them: servers differ in which they go by.

    Raises:
        ValueError: they can't be told: no list, one without a name or with a field twice, or more than anybody offers.
    """
    size = sum([body.size(name) for name in _OFFERING])
    if size < _WORTH_KEEPING:
        return _names_in(body)
    if body not in _named:
        try:
            _named[body] = tuple(_names_in(body)) if size <= LONGEST_TOOLS else None
        except ValueError:
            _named[body] = None
    found = _named[body]
    if found is None:
        raise ValueError("tools that can't be told, or more than are looked at")
    return list(found)


def _names_in(body: Body) -> list[str]:
    raws = {name: bytes(body.fields[name]) for name in _OFFERING if name in body}
    if any(raw.count(b"{") + raw.count(b"[") > MOST_OBJECTS for raw in raws.values()):
        raise ValueError("more tools than are looked at")
    offered = [each for field in ("tools", "functions") if field in raws for each in _list(raws[field]) or ()]
    if len(offered) > MOST_TOOLS:
        raise ValueError("more tools than are looked at")
    names = [name for each in offered for name in _names_of(_fields(each))]
    if "web_search_options" in body:
        names.append("web_search")
    chosen = [name for field in ("tool_choice", "function_call") if field in raws for name in _chosen(raws[field])]
    return names + [name for name in chosen if name not in names]


def _chosen(raw: bytes) -> list[str]:
    if raw[:1] != b"{":
        name = _text(raw)
        return [name] if name and name not in _NO_TOOLS else []
    choice = _fields(raw)
    among = [choice, _fields(choice["allowed_tools"])] if "allowed_tools" in choice else [choice]
    listed = [each for fields in among if "tools" in fields for each in _list(fields["tools"]) or ()]
    return _names_of(choice, must=False) + [name for each in listed for name in _names_of(_fields(each))]


def _names_of(tool: dict[str, msgspec.Raw], *, must: bool = True) -> list[str]:
    inside = [_fields(tool[kind]) for kind in ("function", "custom") if kind in tool and bytes(tool[kind]) != b"null"]
    names = [_text(fields["name"]) or "" if "name" in fields else "" for fields in inside]
    names += [name for field in ("name", "type") if field in tool and (name := _text(tool[field])) and (field, name) not in _HOW]
    if not all(names) or (must and not names):
        raise ValueError("a tool without a name")
    return [name for name in names if name]


def _fields(raw: bytes) -> dict[str, msgspec.Raw]:
    """The fields of an object, each of which is there once, and spelt as we read it: else a server could read another one."""
    raw = bytes(raw)
    fields = _object(raw)
    length = 1 + sum([len(name.encode()) + len(value) + 4 for name, value in fields.items()])  # without white space
    if len(raw) != length and not _each_once(raw, fields):
        raise ValueError("a tool with a field twice")
    if any(name not in _NAMING and len(name) <= 13 and name.casefold() in _NAMING for name in fields):
        raise ValueError("a tool with a field in another case")
    return fields


def _each_once(raw: bytes, fields: dict[str, msgspec.Raw]) -> bool:
    """Whether these are all the members of the object, in their order: of a name that comes twice only one value is among them."""
    at = 0
    for value in fields.values():
        found = _MEMBER.match(raw, at)
        if found is None or not raw.startswith(value, found.end()):
            return False
        at = found.end() + len(value)
    return not fields or raw[at:].strip() == b"}"
