"""exporters/aside.py: text that a reader may take slowly, or not at all."""

from __future__ import annotations

import os
import time
from io import StringIO, TextIOWrapper

from spangate.exporters.aside import Aside


def pipe() -> tuple[int, TextIOWrapper]:
    """Where to read, and a stream to write."""
    reader, writer = os.pipe()
    return reader, TextIOWrapper(os.fdopen(writer, "wb"), encoding="ascii")


def test_all_of_it_arrives_in_order() -> None:
    out = StringIO()
    aside = Aside(out)
    for number in range(1000):
        aside.write(f"{number}\n")
    aside.finish()
    assert out.getvalue().split() == [str(number) for number in range(1000)]
    assert aside.lost == 0


def test_a_file_is_written_past_the_buffer_and_in_what_it_can_say() -> None:
    reader, out = pipe()
    with out:
        out.write("before ")
        aside = Aside(out)
        aside.write("Ω\n")
        aside.finish()
        assert os.read(reader, 100) == b"before \\u03a9\n"
    os.close(reader)


def test_a_reader_who_never_reads_costs_lines_and_no_time() -> None:
    reader, out = pipe()
    line, began = "x" * 999 + "\n", time.perf_counter()
    with out:
        aside = Aside(out, most=100_000)
        for _ in range(2000):
            aside.write(line)
        aside.finish(0.1)
        assert time.perf_counter() - began < 1
        assert 2000 - 400 <= aside.lost <= 1900
        read = 0
        while read < (2000 - aside.lost) * 1000:
            read += len(os.read(reader, 1 << 20))
        aside.finish()  # it has been read, and now its place is free too
        aside.write("again\n")
        aside.finish()
        assert os.read(reader, 100) == b"again\n"
    os.close(reader)


def test_a_reader_who_has_gone_costs_lines() -> None:
    reader, out = pipe()
    os.close(reader)
    with out:
        aside = Aside(out)
        aside.write("one\ntwo\n")
        aside.finish()
        assert aside.lost == 2


def test_it_is_finished_before_it_began() -> None:
    Aside(StringIO()).finish()
