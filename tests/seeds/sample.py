"""The samples of other projects' documentation, run as they stand, but for the names that the page around them leaves open.

A sample is two files: `budget.txt` is the page's own text, `budget.py` the same with our imports, models and credentials;
test_samples.py compares them. What a sample should do is asserted in tests/seeds/test_….py, beside its folder.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

SEEDS = Path(__file__).resolve().parent


def run(sample: str, **left_open: Any) -> ModuleType:
    """Run `agentscope/timing`, say, with these names defined before its first line; gives what it defines."""
    path = SEEDS / f"{sample}.py"
    module = ModuleType(path.stem)
    module.__dict__.update(left_open, __file__=str(path))
    exec(compile(path.read_text("utf-8"), path, "exec", dont_inherit=True), module.__dict__)
    return module
