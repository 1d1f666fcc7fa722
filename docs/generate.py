"""Writes the pages that are made from the code: docs/errors/ from the error table, docs/configuration.md from the settings' own words.

`make docs` runs it; tests/house/test_generated.py says when that is due.
"""  # noqa: INP001 - a program, not a package

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spangate.proxy.error_pages import PAGES
from spangate.proxy.errors import STATUS
from spangate.proxy.kinds import OURS, Kinds
from spangate.proxy.schema import json_schema

DOCS = Path(__file__).resolve().parent

Schema = Mapping[str, Any]


def pages() -> dict[str, str]:
    """Every generated page by its path under docs/."""
    made = {f"errors/{code}.md": page.markdown() for code, page in PAGES.items()}
    return made | {"errors/README.md": error_index(), "configuration.md": configuration(json_schema(our_kinds()))}


def error_index() -> str:
    rows = [f"| {STATUS[code]} | [`{code}`]({code}.md) | {page.when.split('. ')[0].rstrip('.')} |" for code, page in PAGES.items()]
    return "\n".join([
        "# Errors",
        "",
        "Every error has OpenAI's shape, so that clients raise their usual exceptions, and names its page in `doc_url`; the gateway serves",
        "the pages under `/docs/errors/`.",
        "",
        "| status | code | when |",
        "| --- | --- | --- |",
        *sorted(rows, key=lambda row: int(row[2:5])),
        "",
    ])  # fmt: skip


def our_kinds() -> Kinds:
    """The kinds of this repository, whatever plug-ins are installed beside it."""
    found = Kinds()
    providers, policies = OURS["spangate.providers"], OURS["spangate.policies"]
    return Kinds(
        providers={name: kind for name, kind in found.providers.items() if name in providers},
        policies={name: kind for name, kind in found.policies.items() if name in policies},
    )


def configuration(schema: Schema) -> str:
    """A section for each mapping of spangate.yaml, a row for each of its keys."""
    parts = [
        "# spangate.yaml",
        "",
        "Every key that the file may have. [spangate.example.yaml](../spangate.example.yaml) shows them in place; `spangate check` finds",
        "every mistake in a file at once, `spangate schema` gives editors the same words as here.",
        "",
        "Amounts: numbers `k M G`; sizes `kB MB GB` and `KiB MiB GiB`; times `ms s m h d`. `${NAME}` is filled in from the environment.",
    ]
    for path, section in sections(schema, schema, "", set()):
        parts += ["", f"## {path or 'At the top'}", "", one_line(section.get("description", "")), "", *table(section, schema)]
    return "\n".join(parts) + "\n"


def sections(schema: Schema, section: Schema, path: str, met: set[str]) -> Iterator[tuple[str, Schema]]:
    """This mapping and those inside it, each once, where it is met first. A path reads `models.NAME.targets[]`."""
    if section.get("properties"):
        yield path, section
    for name, field in section.get("properties", {}).items():
        places = list(mappings(field, f"{path}.{name}".lstrip(".")))
        for below, reference in places:
            inner = schema["$defs"][reference]
            if reference not in met:
                met.add(reference)
                yield from sections(schema, inner, f"{below} ({told_apart(inner)})" if len(places) > 1 else below, met)


def told_apart(section: Schema) -> str:
    """What tells a mapping from the others that may stand in its place: its kind, or the key that only it has."""
    kind: str = section["properties"].get("kind", {}).get("const") or section["required"][0]
    return kind


def mappings(field: Any, path: str) -> Iterator[tuple[str, str]]:
    """The mappings that a field's value may hold: their paths, and their names in `$defs`."""
    if "$ref" in field:
        yield path, field["$ref"].rpartition("/")[2]
    for choice in (*field.get("anyOf", ()), *field.get("oneOf", ())):
        yield from mappings(choice, path)
    if isinstance(field.get("items"), dict):
        yield from mappings(field["items"], f"{path}[]")
    named = [field["additionalProperties"]] if isinstance(field.get("additionalProperties"), dict) else []
    for each in (*named, *field.get("patternProperties", {}).values()):
        yield from mappings(each, f"{path}.NAME")


def table(section: Schema, schema: Schema) -> Iterator[str]:
    yield from ("| key | default | |", "| --- | --- | --- |")
    for name, field in section["properties"].items():
        required = name in section.get("required", ())
        words = field.get("description") or schema["$defs"].get(field.get("$ref", "").rpartition("/")[2], {}).get("description", "")
        yield f"| `{name}` | {'required' if required else default(field)} | {one_line(words)}{choices(field)} |"


def default(field: Schema) -> str:
    value = field.get("default")
    if value in (None, "", [], {}) or isinstance(value, dict):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def choices(field: Schema) -> str:
    return " One of " + ", ".join(f"`{each}`" for each in field["enum"]) + "." if "enum" in field else ""


def one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    for path, text in pages().items():
        place = DOCS / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    for stray in (DOCS / "errors").glob("*.md"):
        if f"errors/{stray.name}" not in pages():
            stray.unlink()


if __name__ == "__main__":
    main()
