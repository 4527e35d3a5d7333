"""As much of JSON Schema as our schema and speedscope's use; a keyword that is not known here fails."""

from __future__ import annotations

import json
from pathlib import Path

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "doc" / "answers.schema.json").read_text(encoding="utf-8")
)
_KINDS = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
          "boolean": bool, "null": type(None)}  # fmt: skip
_KNOWN = {
    "$schema", "$id", "$ref", "$defs", "title", "description", "type", "const", "enum", "required",
    "properties", "additionalProperties", "items", "allOf", "anyOf", "definitions", "if", "then",
}  # fmt: skip


def is_of(value, kind):
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS[kind])


def conform(value, schema=SCHEMA, root=SCHEMA, path="$"):
    """Check a value against a schema."""
    unknown = set(schema) - _KNOWN
    assert not unknown, f"the schema says {unknown}, which this checker does not know"
    if "$ref" in schema:
        known = root["$defs"] if "$defs" in root else root["definitions"]
        conform(value, known[schema["$ref"].rpartition("/")[2]], root, path)
    wanted = schema.get("type", [])
    wanted = [wanted] if isinstance(wanted, str) else wanted
    assert not wanted or any(is_of(value, kind) for kind in wanted), (path, value, wanted)
    assert "const" not in schema or value == schema["const"], (path, value)
    assert "enum" not in schema or value in schema["enum"], (path, value)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        assert set(schema.get("required", ())) <= set(value), (path, schema["required"], set(value))
        for key, item in value.items():
            if key in properties:
                conform(item, properties[key], root, f"{path}.{key}")
            else:
                extra = schema.get("additionalProperties", True)
                assert extra is not False, (path, key)
                if isinstance(extra, dict):
                    conform(item, extra, root, f"{path}.{key}")
    if isinstance(value, list):
        for number, item in enumerate(value):
            conform(item, schema.get("items", {}), root, f"{path}[{number}]")
    if "anyOf" in schema:
        assert any(fits(value, part, root) for part in schema["anyOf"]), (path, value)
    for part in schema.get("allOf", ()):
        if "if" not in part or fits(value, part["if"], root):
            conform(value, part.get("then", {}) if "if" in part else part, root, path)


def fits(value, schema, root):
    """Return whether a value conforms."""
    try:
        conform(value, schema, root)
    except AssertionError:
        return False
    return True


def conform_event(row):
    """Check a line of eventprof events --json."""
    conform(row, SCHEMA["$defs"]["event"])
