"""What a file for speedscope consists of, as a JSON Schema: names, types and words of its format."""

_UNITS = ("none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes")


def _object(required, optional=()):
    properties = {**dict(required), **dict(optional)}
    return {
        "type": "object",
        "properties": properties,
        "required": list(dict(required)),
        "additionalProperties": False,
    }


def _list(items):
    return {"type": "array", "items": items}


_TEXT, _NUMBER, _INDEX = {"type": "string"}, {"type": "number"}, {"type": "integer"}
_FRAME = _object({"name": _TEXT}, {"file": _TEXT, "line": _NUMBER, "col": _NUMBER})
_EVENT = _object({"type": {"enum": ["O", "C"]}, "at": _NUMBER, "frame": _INDEX})
_ANY_PROFILE = {
    "name": _TEXT,
    "unit": {"enum": list(_UNITS)},
    "startValue": _NUMBER,
    "endValue": _NUMBER,
}
_EVENTED = _object({"type": {"const": "evented"}, **_ANY_PROFILE, "events": _list(_EVENT)})
_SAMPLED = _object(
    {
        "type": {"const": "sampled"},
        **_ANY_PROFILE,
        "samples": _list(_list(_INDEX)),
        "weights": _list(_NUMBER),
    }
)
SCHEMA = _object(
    {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "shared": _object({"frames": _list(_FRAME)}),
        "profiles": _list({"anyOf": [_EVENTED, _SAMPLED]}),
    },
    {"name": _TEXT, "exporter": _TEXT, "activeProfileIndex": _INDEX},
)
