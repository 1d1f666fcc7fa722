"""What an image costs: its width and height from the first bytes of its file, and tokens from tables.

Pure, and without a picture library: the four formats that providers take say their size near the start. The tables are the vendors' own
rules, as far as they are known; a model that none fits is counted as OpenAI's of the `gpt-4o` family.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from dataclasses import dataclass
from math import ceil

import msgspec

LOOKED = 48 << 10  # bytes of base64 that are looked at; what stands before a JPEG's size may be a preview of the picture
_START = 64  # of them are enough for the other formats
_SIZES_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # JPEG's SOF markers
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # its markers without a length


class Image(msgspec.Struct, frozen=True):
    """One image of a request. Pixels; 0: not known. `low`: asked for in low detail."""

    width: int = 0
    height: int = 0
    low: bool = False


def size_of(encoded: bytes) -> tuple[int, int]:
    """Width and height of the PNG, GIF, WebP or JPEG that begins so in base64, or (0, 0)."""
    start = _decoded(encoded[:_START])
    if start.startswith(b"\x89PNG\r\n\x1a\n") and start[12:16] == b"IHDR":
        return _big(start, 16, 4), _big(start, 20, 4)
    if start.startswith((b"GIF87a", b"GIF89a")):
        return _little(start, 6, 2), _little(start, 8, 2)
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return _webp(start)
    return _jpeg(_decoded(encoded[:LOOKED])) if start.startswith(b"\xff\xd8") else (0, 0)


def _decoded(encoded: bytes) -> bytes:
    plain = encoded.replace(b"\\/", b"/")  # JSON may escape it
    try:  # strictly: a server may read more into what is no base64 than we do
        return b64decode(plain[: len(plain) // 4 * 4], validate=True)
    except Error:
        return b""


def _big(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "big")


def _little(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "little")


def _webp(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
    if kind == b"VP8L" and data[20:21] == b"\x2f":
        bits = _little(data, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return (_little(data, 24, 3) + 1, _little(data, 27, 3) + 1) if kind == b"VP8X" else (0, 0)


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _SIZES_OF_FRAME:
            return _big(data, at + 7, 2), _big(data, at + 5, 2)
        at += 1 if marker == 0xFF else 2 if marker in _ALONE else 2 + _big(data, at + 2, 2)
    return 0, 0


@dataclass(frozen=True, slots=True)
class Tiles:
    """`base`, and `tile` for each square of 512 pixels, once the image fits 2048 × 2048 and its shorter side 768."""

    base: int
    tile: int

    def tokens(self, image: Image) -> int:
        if image.low:
            return self.base
        width, height = _fitting(image.width or 2048, image.height or 2048, 2048)
        if not image.width or not image.height:
            return self.base + 8 * self.tile  # as many as any image has
        shrink = min(1.0, 768 / min(width, height))
        return self.base + self.tile * ceil(width * shrink / 512) * ceil(height * shrink / 512)


@dataclass(frozen=True, slots=True)
class Patches:
    """`rate` for each square of 32 pixels, of which there are at most 1536."""

    rate: float

    def tokens(self, image: Image) -> int:
        patches = ceil(image.width / 32) * ceil(image.height / 32)
        return ceil(self.rate * min(patches or 1536, 1536))


@dataclass(frozen=True, slots=True)
class Pixels:
    """A token for so many pixels, once the longer side fits `side`."""

    pixels: int
    side: int

    def tokens(self, image: Image) -> int:
        width, height = _fitting(image.width or self.side, image.height or self.side, self.side)
        return ceil(width * height / self.pixels)


def _fitting(width: float, height: float, side: int) -> tuple[float, float]:
    shrink = min(1.0, side / max(width, height))
    return width * shrink, height * shrink


# By the beginning of a model's name, the first that fits.
_TABLE: tuple[tuple[str, Tiles | Patches | Pixels], ...] = (
    ("gpt-4.1-mini", Patches(1.62)),
    ("gpt-4.1-nano", Patches(2.46)),
    ("gpt-5-mini", Patches(1.62)),
    ("gpt-5-nano", Patches(2.46)),
    ("o4-mini", Patches(1.72)),
    ("gpt-4o-mini", Tiles(2833, 5667)),
    ("gpt-5", Tiles(70, 140)),
    ("o1", Tiles(75, 150)),
    ("o3", Tiles(75, 150)),
    ("computer-use", Tiles(65, 129)),
    ("claude", Pixels(750, 1568)),
)
_USUAL = Tiles(85, 170)


def tokens_of(image: Image, model: str) -> int:
    """What `image` counts for `model`, by its name or that with a vendor's before a slash. Where its size isn't known, the most."""
    name = model.rpartition("/")[2]
    return next((rule for prefix, rule in _TABLE if name.startswith(prefix)), _USUAL).tokens(image)
