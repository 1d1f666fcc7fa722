"""What the demo runs on: its spangate.yaml, its provider's script, its teams, and how to make a folder of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .. import config as configuration
from .. import keys_file
from ..config import Config

CONFIGURATION = """\
providers:
  script: {kind: scripted, script: answers.yaml}
models:
  fast: {targets: [{provider: script, model: gpt-5-mini}]}
  strong: {targets: [{provider: script, model: gpt-5.5}]}
  vectors: {targets: [{provider: script, model: embedding-3}]}
teams:
  search:
    models: [fast, vectors]
  support:
    models: [fast, strong]
  interns:
    models: [fast]
telemetry: {}
usage: {path: usage.duckdb}
prices:
  - {provider: script, model: gpt-5-mini, input: 0.25, output: 2}
  - {provider: script, model: gpt-5.5, input: 1.25, output: 10}
  - {provider: script, model: "*", input: 0.02, output: 0}
"""

ANSWERS = """\
- when: {contains: incident}
  fault: {status: 503, message: The engine is overloaded.}
- when: {contains: weather in}
  answer: {tool_calls: [{name: get_weather, arguments: {city: Rome, unit: celsius}}], first: 8ms}
  usage: {input: 61, output: 19}
- when: {contains: gateway for}
  answer:
    text: >-
      One address for every model, one key for each team, and one place that knows who asked for what, when it came, and how it ended.
    first: 60ms
    every: 20ms
- when: {contains: refund}
  answer: {text: "Certainly. The refund for order 1042 is on its way.", first: 14ms}
- when: {contains: capital of}
  answer: {text: Rome., first: 5ms}
"""

TEAMS = ("search", "support", "interns")
KEY_NAME = "app"


@dataclass(frozen=True, slots=True)
class Stage:
    """A configuration that is ready to run, and the key of each team."""

    config: Config
    keys: Mapping[str, str]

    def line_of(self, team: str) -> int:
        """Where the rule stands that says which models a team may use."""
        lines = CONFIGURATION.splitlines()
        return lines.index(f"  {team}:") + 2


def stage(folder: Path) -> Stage:
    """Write the demo's files into `folder`."""
    (folder / "answers.yaml").write_text(ANSWERS, encoding="utf-8")
    file = folder / configuration.DEFAULT_FILE
    file.write_text(CONFIGURATION, encoding="utf-8")
    keys = {team: keys_file.new(folder / "spangate.keys.yaml", team, KEY_NAME, now=datetime.now(UTC))[0] for team in TEAMS}
    return Stage(configuration.load(file, environ={}), keys)
