"""The dashboards as they are in grafana/: their panels and variables, and what their queries name.

`substituted` fills in what Grafana would, so that a Prometheus can be asked the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from house.source import ROOT

DASHBOARDS = sorted((ROOT / "grafana/dashboards").glob("*.json"))
PROMETHEUS_OWN = {"up", "scrape_samples_scraped"}  # made by whoever scrapes

_TEXT = re.compile(r'"(?:\\.|[^"\\])*"')
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_BRACES = re.compile(r"\{[^}]*\}")
_RANGE = re.compile(r"\[[^\]]*\]")
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_NAME = re.compile(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()")
_WORDS = {"or", "and", "unless", "bool", "offset"}


@dataclass(frozen=True)
class Query:
    """A question to Prometheus: whose, and whether its exemplars are asked for too."""

    dashboard: str
    panel: str
    expr: str
    exemplar: bool = False

    def __str__(self) -> str:
        return f"{self.panel}: {self.expr}"

    @property
    def metrics(self) -> set[str]:
        """The samples that it reads, by their names."""
        bare = _RANGE.sub("", _GROUPED.sub("", _BRACES.sub("", _TEXT.sub("", self.expr))))
        return set(_NAME.findall(bare)) - _WORDS

    @property
    def labels(self) -> set[str]:
        """What it selects and groups by."""
        bare = _TEXT.sub("", self.expr)
        matched = {name for braces in _BRACES.findall(bare) for name in _MATCHER.findall(braces)}
        return matched | {name.strip() for group in _GROUPED.findall(bare) for name in group.split(",")}


@cache
def dashboard(path: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def panels(path: Path) -> list[Mapping[str, Any]]:
    """Those that show something, and the rows between them."""
    top = dashboard(path)["panels"]
    return [*top, *(inner for panel in top for inner in panel.get("panels", ()))]


def variables(path: Path) -> list[Mapping[str, Any]]:
    return list(dashboard(path)["templating"]["list"])


def queries(path: Path) -> Iterator[Query]:
    """All that a dashboard asks: its panels' and its annotations'."""
    name = path.stem
    for panel in panels(path):
        for target in panel.get("targets", ()):
            yield Query(name, panel["title"], target["expr"], bool(target.get("exemplar")))
    for annotation in dashboard(path)["annotations"]["list"]:
        if "expr" in annotation:
            yield Query(name, annotation["name"], annotation["expr"])


def values_of(path: Path) -> Iterator[tuple[str, str, str]]:
    """Of each variable that Prometheus fills: its name, the series that it reads, the label whose values it has."""
    for variable in variables(path):
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.*), *(\w+)\)", variable["definition"])
            assert asked, variable["definition"]
            yield variable["name"], asked[1], asked[2]


def substituted(expr: str, window: str, chosen: Mapping[str, str]) -> str:
    """The query with a window for its rates and a value for each variable."""
    for name, value in {"__rate_interval": window, "__range": window, **chosen}.items():
        expr = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", lambda _, value=value: value, expr)
    assert "$" not in expr, f"a variable has no value: {expr}"
    return expr
