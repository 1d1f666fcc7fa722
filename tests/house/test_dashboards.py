"""The dashboards: well made, and every name on them is one that the code tells. tests/journeys/test_prometheus.py asks their queries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from spangate.exporters import semconv
from spangate.exporters.metrics.openmetrics import name_of
from spangate.exporters.semconv import Instrument

from house.dashboards import DASHBOARDS, PROMETHEUS_OWN, Query, dashboard, panels, queries, values_of, variables
from house.source import ROOT

DATASOURCES = yaml.safe_load((ROOT / "grafana/provisioning/datasources/spangate.yaml").read_text("utf-8"))["datasources"]
QUERIES = [query for path in DASHBOARDS for query in queries(path)]
HISTOGRAM = ("_bucket", "_sum", "_count")

each_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def declared() -> set[str]:
    """Every sample that the code may show, as Prometheus calls it."""
    specs = [each for each in vars(semconv).values() if isinstance(each, Instrument)]
    simple = {name_of(spec) for spec in specs if spec.kind != "histogram"}
    return simple | {name_of(spec) + suffix for spec in specs if spec.kind == "histogram" for suffix in HISTOGRAM}


def attributes() -> set[str]:
    """Every attribute that the code knows, as Prometheus calls it."""
    named = {value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}
    return {re.sub(r"\W", "_", each) for each in named}


def test_there_is_an_overview() -> None:
    assert "overview" in [path.stem for path in DASHBOARDS]
    assert len(QUERIES) > 40


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_every_name_is_one_that_the_code_tells(query: Query) -> None:
    assert query.metrics
    assert query.metrics <= declared() | PROMETHEUS_OWN
    assert query.labels <= attributes() | {"le", "job", "instance"}


@each_dashboard
def test_every_variable_has_values_that_the_code_tells(path: Path) -> None:
    for _, series, label in values_of(path):
        assert Query(path.stem, "variable", series).metrics <= declared()
        assert label in attributes()


@pytest.mark.parametrize("expr", ['sum by (spangate_teem) (rate(spangate_request_total{a="b}"}[5m]))', "spangate_tokens * 2"])
def test_a_wrong_name_is_found(expr: str) -> None:
    assert not Query("", "", expr).metrics <= declared()


def test_what_a_query_names_is_read_from_it() -> None:
    query = Query("", "", 'histogram_quantile(0.9, sum by (le, a_b) (rate(x_bucket{c=~"$d|e {f}", g!="h"}[$__range]))) or vector(0)')
    assert query.metrics == {"x_bucket"}
    assert query.labels == {"le", "a_b", "c", "g"}


@each_dashboard
def test_it_is_well_made(path: Path) -> None:
    board = dashboard(path)
    ids = [panel["id"] for panel in panels(path)]
    assert len(ids) == len(set(ids))
    assert board["uid"].startswith("spangate-")
    assert board["title"].startswith("spangate")
    assert "id" not in board, "it belongs to the Grafana that it was exported from"
    titles = [panel["title"] for panel in panels(path)]
    assert len(titles) == len(set(titles))
    assert overlapping(path) == []


def overlapping(path: Path) -> list[tuple[str, str]]:
    """Panels that stand on one another, or beyond the edge."""

    def covered(panel: Mapping[str, Any]) -> set[tuple[int, int]]:
        x, y, width, height = (panel["gridPos"][name] for name in "xywh")
        return {(x + right, y + down) for right in range(width) for down in range(height)}

    pairs = combinations(dashboard(path)["panels"], 2)
    beyond = [(panel["title"], "the edge") for panel in dashboard(path)["panels"] if panel["gridPos"]["x"] + panel["gridPos"]["w"] > 24]
    return beyond + [(one["title"], other["title"]) for one, other in pairs if covered(one) & covered(other)]


@each_dashboard
def test_every_panel_says_what_it_shows_and_in_which_unit(path: Path) -> None:
    for panel in panels(path):
        if panel["type"] == "row":
            continue
        assert len(panel["description"]) > 20, panel["title"]
        unit = panel["fieldConfig"]["defaults"].get("unit") or panel["options"]["yAxis"]["unit"]
        assert unit, panel["title"]
        assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references)), panel["title"]


@each_dashboard
def test_every_datasource_is_provisioned(path: Path) -> None:
    known = {(each["type"], each["uid"]) for each in DATASOURCES}
    [chosen] = [each for each in variables(path) if each["type"] == "datasource"]
    assert (chosen["query"], chosen["current"]["value"]) in known
    own = {("prometheus", f"${{{chosen['name']}}}"), ("grafana", "-- Grafana --")}
    assert {(each["type"], each["uid"]) for each in datasources(dashboard(path))} <= known | own


def datasources(value: Any) -> list[dict[str, str]]:
    """Wherever in the dashboard one is named."""
    if isinstance(value, list):
        return [found for each in value for found in datasources(each)]
    if not isinstance(value, dict):
        return []
    named = [value["datasource"]] if isinstance(value.get("datasource"), dict) else []
    return named + [found for each in value.values() for found in datasources(each)]


@each_dashboard
def test_every_variable_is_used_and_every_used_one_is_there(path: Path) -> None:
    names = {each["name"] for each in variables(path)}
    asked = " ".join([str(query) for query in queries(path)] + [series for _, series, _ in values_of(path)])
    used = set(re.findall(r"\$\{?(\w+)", asked)) - {"__rate_interval", "__range"}
    assert used == names - {"datasource"}


def test_exemplars_lead_to_jaeger() -> None:
    [prometheus] = [each for each in DATASOURCES if each["type"] == "prometheus"]
    leads = prometheus["jsonData"]["exemplarTraceIdDestinations"]
    assert {each["name"] for each in leads} == {"trace_id"}
    assert "jaeger" in {each.get("datasourceUid") for each in leads}
    assert any(query.exemplar for query in QUERIES)
