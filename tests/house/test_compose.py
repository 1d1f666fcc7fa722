"""docker-compose.yml, the Dockerfile and what they mount: as their formats want them, pinned, careful, and agreed with one another.

compose-spec.json is the Compose Specification's own schema; its first line says where it is from.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from spangate.call.script import Script
from spangate.exporters.otlp.config import read
from spangate.proxy import config

from case import case
from gateway import KINDS
from house.source import ROOMS, ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
COLLECTOR: dict[str, Any] = yaml.safe_load((ROOT / "compose/collector.yaml").read_text("utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
OURS = "spangate:local"
UNASKED = {"collector": "its image holds one program, which can't ask itself"}
VERSION = r"v?\d+\.\d+\.\d+(-[a-z]+)*"

each_service = pytest.mark.parametrize("name", SERVICES)


def test_it_is_what_compose_reads() -> None:
    schema = json.loads((ROOT / "tests/house/compose-spec.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    found = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(COMPOSE)]
    assert found == []


def test_the_schema_finds_a_mistake() -> None:
    schema = json.loads((ROOT / "tests/house/compose-spec.json").read_text("utf-8"))
    assert not Draft202012Validator(schema).is_valid({"services": {"gateway": {"imgae": "spangate"}}})


@each_service
def test_its_image_is_pinned(name: str) -> None:
    image = SERVICES[name]["image"]
    assert image == OURS or re.fullmatch(rf"[\w./-]+:{VERSION}", image)


def test_our_image_is_built_here_whoever_is_started_first() -> None:
    ours = {name for name, service in SERVICES.items() if service["image"] == OURS}
    assert ours == {name for name, service in SERVICES.items() if "build" in service} == {"keys", "gateway", "traffic"}


@each_service
def test_it_may_do_little(name: str) -> None:
    service = SERVICES[name]
    assert service["user"].partition(":")[0] not in ("", "0", "root")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "pid", "ipc"} & set(service)


@each_service
def test_its_ports_are_this_machines_own(name: str) -> None:
    for port in SERVICES[name].get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z]+_PORT:-\d+\}:\d+", port)


@each_service
def test_what_it_mounts_is_there(name: str) -> None:
    for mount in SERVICES[name].get("volumes", ()):
        source, _, rest = mount.partition(":")
        if source.startswith("."):
            assert (ROOT / source).exists(), mount
            assert rest.endswith(":ro"), mount
        else:
            assert source in COMPOSE["volumes"], mount


@each_service
def test_it_can_be_asked_whether_it_is_well(name: str) -> None:
    service = SERVICES[name]
    check = service.get("healthcheck", {})
    alone = name in UNASKED or service.get("restart") == "no" or "profiles" in service
    assert check.get("test") or service["image"] == OURS or alone
    for other, wanted in service.get("depends_on", {}).items():
        healthy = bool(SERVICES[other].get("healthcheck", {}).get("test")) or SERVICES[other]["image"] == OURS
        assert wanted["condition"] == "service_completed_successfully" if SERVICES[other].get("restart") == "no" else True
        assert healthy or wanted["condition"] != "service_healthy", f"{other} can't be asked"


def test_it_holds_no_secret() -> None:
    secret = re.compile(r"PASSWORD|SECRET|TOKEN|API_KEY|PRIVATE")
    assert [each for service in SERVICES.values() for each in service.get("environment", {}) if secret.search(each)] == []
    assert SERVICES["grafana"]["environment"]["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


# ---- the gateway


def test_the_gateways_configuration_is_good(tmp_path: Path) -> None:
    text = (ROOT / "compose/spangate.yaml").read_text("utf-8").replace("/data/", f"{tmp_path}/")
    (tmp_path / "spangate.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "answers.yaml").write_bytes((ROOT / "compose/answers.yaml").read_bytes())
    loaded = config.load(tmp_path / "spangate.yaml", environ={}, kinds=KINDS)
    assert {*loaded.settings.teams} == set(re.search(r"for team in ([\w ]+);", SERVICES["keys"]["command"][0])[1].split())  # type: ignore[index]
    assert len(Script.load(tmp_path / "answers.yaml").rules) > 5
    told = read(loaded.settings.telemetry, SERVICES["gateway"]["environment"])
    assert told.traces.target
    assert told.traces.target.endpoint == "http://collector:4318/v1/traces"
    assert told.metrics


def test_it_is_given_the_files_that_its_configuration_names() -> None:
    mounts = dict(mount.split(":")[:2] for mount in SERVICES["gateway"]["volumes"])
    assert SERVICES["gateway"]["environment"]["SPANGATE_CONFIG"] == mounts["./compose/spangate.yaml"]
    assert mounts["./compose/answers.yaml"] == "/etc/spangate/answers.yaml"
    assert mounts["spangate"] == "/data"


# ---- the others


def test_the_collector_hands_on_what_it_takes() -> None:
    parts = {kind: set(COLLECTOR[kind]) for kind in ("receivers", "processors", "exporters")}
    for pipeline in COLLECTOR["service"]["pipelines"].values():
        for kind, known in parts.items():
            assert set(pipeline[kind]) <= known
    assert set(COLLECTOR["service"]["extensions"]) == set(COLLECTOR["extensions"])
    assert set(COLLECTOR["service"]["pipelines"]) == {"traces", "metrics", "logs"}, "all that the gateway sends"
    assert COLLECTOR["exporters"]["otlp_grpc/jaeger"]["endpoint"].partition(":")[0] in SERVICES
    assert COLLECTOR["exporters"]["prometheus"]["enable_open_metrics"] is True, "exemplars come in no other format"


def test_prometheus_asks_the_collector() -> None:
    [job] = yaml.safe_load((ROOT / "compose/prometheus.yml").read_text("utf-8"))["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in SERVICES
    assert COLLECTOR["exporters"]["prometheus"]["endpoint"].endswith(f":{port}")
    assert job["honor_labels"] is True


def test_grafana_asks_services_that_are_there() -> None:
    provisioned = yaml.safe_load((ROOT / "grafana/provisioning/datasources/spangate.yaml").read_text("utf-8"))
    for datasource in provisioned["datasources"]:
        assert re.fullmatch(r"http://(\w+):\d+", datasource["url"])[1] in SERVICES  # type: ignore[index]
    interval = yaml.safe_load((ROOT / "compose/prometheus.yml").read_text("utf-8"))["global"]["scrape_interval"]
    assert provisioned["datasources"][0]["jsonData"]["timeInterval"] == interval
    [provider] = yaml.safe_load((ROOT / "grafana/provisioning/dashboards/spangate.yaml").read_text("utf-8"))["providers"]
    mounts = dict(mount.split(":")[:2] for mount in SERVICES["grafana"]["volumes"])
    assert mounts["./grafana/dashboards"] == provider["options"]["path"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / "grafana/dashboards" / Path(home).name).exists()


# ---- the image


def copied() -> set[str]:
    """What the Dockerfile takes from the repository."""
    return {source for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE) for source in line.split()[:-1]}


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps it out: the last line that fits counts."""
    out = False
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and (pattern in ("*", path) or path.startswith(f"{pattern}/")):
            out = not line.startswith("!")
    return out


def test_the_image_is_made_of_what_is_there() -> None:
    assert {*ROOMS, "__init__.py", "py.typed", "pyproject.toml", "lock/runtime.txt", "lock/build.txt"} <= copied()
    assert [source for source in copied() if not (ROOT / source).exists() or ignored(source)] == []


@pytest.mark.parametrize(
    "path", [".git", ".env", ".venv", "spangate.yaml", "spangate.duckdb", "spangate.keys.yaml", "tests", "lock/dev.txt"]
)
def test_nothing_else_gets_into_it(path: str) -> None:
    assert ignored(path)


def test_the_image_is_pinned_and_small() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(rf"python:{VERSION}", bases[0])
    assert "slim" in bases[0]
    assert DOCKERFILE.count("--require-hashes") == 2
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM") :]
    assert "pip" not in last
    assert re.search(r"^USER 10001", last, re.MULTILINE)
    assert re.search(r"^VOLUME /data$", last, re.MULTILINE)


def health() -> list[str]:
    """The image's question about its own health, for this Python."""
    said = re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert said
    program, *arguments = json.loads(said[1])
    assert program == "python"
    return [sys.executable, *arguments]


async def well(port: int) -> bool:
    environment = {"SPANGATE_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
    ran = await asyncio.to_thread(subprocess.run, health(), env=environment, capture_output=True, timeout=20, check=False)
    return ran.returncode == 0


async def test_the_image_asks_after_its_health(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        async with asyncio.timeout(20):
            while not await well(it.running.address.port):
                pass
        it.running.app.endpoints.draining = True
        assert not await well(it.running.address.port)
        it.running.app.endpoints.draining = False
    assert not await well(it.running.address.port)
