"""Examples in /openapi.json, put together from the examples of the fields.

A body gets its example with its fields: whoever adds an endpoint gives the fields examples and
writes none for the whole.
"""

from __future__ import annotations

from typing import Any

NO_EXAMPLE = "(no example)"
"""Stands where nothing can be made up for a field; a test looks for it."""


def example_of(schema: dict[str, Any], known: dict[str, Any]) -> Any:
    """An example of `schema`; `known` are the named schemas it may refer to.

    >>> example_of({"properties": {"a": {"examples": [1]}, "b": {"type": "null"}}}, {})
    {'a': 1, 'b': None}
    """
    if "$ref" in schema and "examples" not in schema:
        return example_of(known[schema["$ref"].rpartition("/")[2]], known)
    for many in ("examples", "enum"):
        if many in schema:
            return schema[many][0]
    for one in ("const", "default"):
        if one in schema:
            return schema[one]
    if "anyOf" in schema:
        found = [example_of(choice, known) for choice in schema["anyOf"]]
        return next((e for e in found if e is not None and e != NO_EXAMPLE), found[-1])
    return _of_type(schema, known)


def _of_type(schema: dict[str, Any], known: dict[str, Any]) -> Any:
    if "properties" in schema:
        return {name: example_of(one, known) for name, one in schema["properties"].items()}
    if schema.get("type") == "array":
        return [example_of(schema["items"], known)]
    if schema.get("format") == "date-time":
        return "2026-03-02T09:00:00.120000Z"
    if schema.get("format") == "binary":
        return "(the bytes of the file)"
    plain: dict[str, Any] = {"null": None, "boolean": True, "object": {}}
    return plain.get(schema.get("type", ""), NO_EXAMPLE)
