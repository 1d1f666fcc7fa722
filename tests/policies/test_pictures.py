"""policies/pictures.py: how large an image is, and what it costs."""

from __future__ import annotations

import base64
from struct import pack

import pytest

from spangate.policies.pictures import Image, size_of, tokens_of

START = b"\xff\xd8"


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + pack(">I4sII", 13, b"IHDR", width, height) + bytes(40)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + pack("<HH", width, height) + bytes(40)


def jpeg(width: int, height: int, before: bytes = b"") -> bytes:
    return START + before + b"\xff\xc0" + pack(">HBHH", 17, 8, height, width) + bytes(40)


def segment(marker: int, length: int) -> bytes:
    return bytes((0xFF, marker)) + pack(">H", length + 2) + bytes(length)


def webp(kind: bytes, rest: bytes) -> bytes:
    return b"RIFF" + bytes(4) + b"WEBP" + kind + rest + bytes(40)


@pytest.mark.parametrize(
    ("picture", "size"),
    [
        (png(640, 480), (640, 480)),
        (gif(320, 200), (320, 200)),
        (jpeg(1024, 768), (1024, 768)),
        (jpeg(1024, 768, segment(0xE0, 14) + segment(0xE1, 20_000) + segment(0xDB, 65)), (1024, 768)),
        (jpeg(1024, 768, b"\xff\xff" + segment(0xE0, 14)[1:]), (1024, 768)),
        (jpeg(1024, 768, b"\xff\x01"), (1024, 768)),
        (webp(b"VP8 ", bytes(7) + b"\x9d\x01\x2a" + pack("<HH", 800, 600)), (800, 600)),
        (webp(b"VP8L", bytes(4) + b"\x2f" + pack("<I", 799 | 599 << 14)), (800, 600)),
        (webp(b"VP8X", bytes(8) + pack("<I", 799)[:3] + pack("<I", 599)[:3]), (800, 600)),
        (webp(b"VP9 ", bytes(20)), (0, 0)),
        (b"BM" + bytes(60), (0, 0)),
        (START + segment(0xE1, 60_000) + segment(0xE1, 60_000), (0, 0)),
        (START + bytes(20), (0, 0)),
        (b"", (0, 0)),
    ],
)
def test_sizes(picture: bytes, size: tuple[int, int]) -> None:
    encoded = base64.b64encode(picture)
    assert size_of(encoded) == size
    assert size_of(encoded.replace(b"/", b"\\/")) == size


@pytest.mark.parametrize("between", [b"\\n", b"\\u0041", b" ", b"-", b"="])
def test_what_others_may_read_otherwise_has_no_size(between: bytes) -> None:
    encoded = base64.b64encode(png(640, 480))
    assert size_of(encoded[:16] + between * 4 + encoded[16:]) == (0, 0)


def test_what_is_no_base64_has_no_size() -> None:
    assert size_of(b"!" * 100) == (0, 0)
    assert size_of(b"abcde=fg" * 10) == (0, 0)


@pytest.mark.parametrize(
    ("model", "image", "tokens"),
    [
        ("gpt-4o", Image(512, 512), 85 + 170),
        ("gpt-4o", Image(1024, 1024), 85 + 4 * 170),
        ("gpt-4o", Image(2048, 4096), 85 + 6 * 170),
        ("gpt-4o", Image(), 85 + 8 * 170),
        ("gpt-4o", Image(4096, 4096, low=True), 85),
        ("gpt-4o-mini", Image(512, 512), 2833 + 5667),
        ("gpt-5", Image(512, 512), 70 + 140),
        ("openai/gpt-5-mini", Image(1024, 1024), 1659),
        ("gpt-4.1-nano", Image(), 3779),
        ("o3", Image(512, 512), 225),
        ("claude-sonnet-4-6", Image(1000, 1000), 1334),
        ("claude-sonnet-4-6", Image(), 3279),
        ("anybody's", Image(512, 512), 255),
    ],
)
def test_costs(model: str, image: Image, tokens: int) -> None:
    assert tokens_of(image, model) == tokens
