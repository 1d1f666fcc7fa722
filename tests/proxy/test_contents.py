"""proxy/contents.py: files and pipes to their end, and no longer than anybody waits."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from spangate.proxy.contents import MAX_BYTES, content_of, folder_of, text_of, told_of
from spangate.proxy.mistakes import ConfigMistakes


def written(path: Path, content: bytes) -> threading.Thread:
    """A writer that opens a pipe, writes, and closes it."""

    def write() -> None:
        try:
            path.write_bytes(content)
        except BrokenPipeError:
            return  # the reader has had enough

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_a_file_and_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"teams: {}\n")
    path.chmod(0o640)
    assert content_of(path) == (b"teams: {}\n", stat.S_IFREG | 0o640)


@pytest.mark.parametrize("more", [1, 1000])
def test_of_one_that_is_too_large_no_more_than_shows_it(tmp_path: Path, more: int) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(bytes(MAX_BYTES + more))
    assert len(content_of(path)[0]) == MAX_BYTES + 1


@pytest.mark.parametrize("size", [0, 10, 200_000])
def test_a_pipe_to_its_end(tmp_path: Path, size: int) -> None:
    """Whoever writes to it may come later than whoever reads."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    thread = written(path, b"x" * size)
    found, mode = content_of(path, piped=True)
    thread.join()
    assert (len(found), stat.S_ISFIFO(mode)) == (size, True)


def test_a_pipe_of_a_shell(tmp_path: Path) -> None:
    """As `<(…)` gives it: without a name, and perhaps closed by its writer before it is opened here."""
    ours, theirs = os.pipe()
    os.write(theirs, b"teams: {}\n")
    os.close(theirs)
    assert content_of(Path(f"/dev/fd/{ours}"), piped=True)[0] == b"teams: {}\n"
    assert content_of(Path(f"/dev/fd/{ours}"), piped=True)[0] == b"", "and at once"
    os.close(ours)


def test_a_pipe_without_an_end_is_read_as_far_as_it_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    thread = written(path, bytes(MAX_BYTES + 10_000_000))
    assert MAX_BYTES < len(content_of(path, piped=True)[0]) <= MAX_BYTES + (1 << 16)
    thread.join()


@pytest.mark.parametrize("held", [True, False], ids=["a writer that says nothing", "nobody"])
def test_a_pipe_that_does_not_end_costs_the_patience(tmp_path: Path, held: bool) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    both = os.open(path, os.O_RDWR) if held else -1
    with pytest.raises(OSError, match=r"not all of it was written within 0\.05 s"):
        content_of(path, piped=True, patience=0.05)
    if held:
        os.close(both)


@pytest.mark.parametrize("piped", [True, False])
def test_a_device_has_no_end(piped: bool) -> None:
    with pytest.raises(OSError, match="is neither a file nor a pipe" if piped else "is not a file"):
        content_of(Path("/dev/zero"), piped=piped)


def test_where_pipes_may_not_be_none_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a file"):
        content_of(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("path", "folder"),
    [("a/b.yaml", "a"), ("b.yaml", "."), ("/etc/b.yaml", "/etc"), ("/dev/shm/b", "/dev/shm"), ("/dev/fd/63", "."), ("/dev/stdin", ".")],
)
def test_a_pipe_is_in_no_folder(path: str, folder: str) -> None:
    assert folder_of(Path(path)) == Path(folder)


# ---- what is wrong with it, in words


def test_what_can_not_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    with pytest.raises(FileNotFoundError):
        told_of(path, "a.yaml")
    path.mkdir()
    with pytest.raises(ConfigMistakes, match=r"^a\.yaml: can't be read: "):
        told_of(path, "a.yaml")
    path.rmdir()
    path.write_bytes(bytes(MAX_BYTES))
    assert len(told_of(path, "a.yaml")[0]) == MAX_BYTES
    path.write_bytes(bytes(MAX_BYTES + 1))
    with pytest.raises(ConfigMistakes, match=r"^a\.yaml: is larger than 4 MiB$"):
        told_of(path, "a.yaml")


def test_where_it_is_not_utf_8() -> None:
    assert text_of(b"\xef\xbb\xbfa: \xc3\xb6\n", "a.yaml") == "a: ö\n"
    with pytest.raises(ConfigMistakes, match=r"^a\.yaml:2:4: is not UTF-8 \(byte 0xc3\)$"):
        text_of(b"a: 1\nb: \xc3(", "a.yaml")
