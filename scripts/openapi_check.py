"""Hooks for schemathesis: what the API's description cannot express."""

import re

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", errors="ignore")


@schemathesis.hook
def map_body(ctx, body):
    """Applies bounds of events that JSON Schema cannot express, and sends valid scenarios."""
    if ctx.operation.label == "POST /v1/simulate":
        return played(body)
    if "/v1/removed/" in ctx.operation.label and isinstance(body, dict):
        return {name: whole(value) for name, value in body.items()}
    if ctx.operation.label != "POST /v1/events":
        return body
    return [bounded(event) for event in body] if isinstance(body, list) else bounded(body)


SCENARIO = """version: 1
duration: 10s
arrivals: [{ type: "*", rate: 2/s }]
dependencies: { all: { phases: [{ at: 2s, for: 3s, is: down }] } }
"""


def played(body):
    """Replaces any text by a valid scenario; other values stay invalid."""
    if isinstance(body, dict) and isinstance(body.get("scenario"), str) and body["scenario"]:
        return {**{name: whole(value) for name, value in body.items()}, "scenario": SCENARIO}
    return body


def bounded(event):
    if not isinstance(event, dict):
        return event
    return {name: time(value) if name == "time" else whole(value) for name, value in event.items()}


def whole(value):
    """The server takes no fractions as integers; JSON Schema allows 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def time(value):
    """Times range from 1970 to 2554; leap years repeat every 400 years."""
    if not isinstance(value, str):
        return value
    return re.sub(r"^\d{4}", lambda year: str(2000 + int(year[0]) % 400), value)


# Implementation details: types, files, queries and library messages.
INSIDE = re.compile(r"\b(struct|enum|tuple|variant) \w+|\w::\w|\.rs\b|panicked|(?i:sqlite|\bselect \w+ from\b)")


@schemathesis.check
def nothing_of_the_inside(ctx, response, case):
    """Error messages must not show implementation details."""
    if response.status_code >= 400:
        found = INSIDE.search(response.json()["error"]["message"])
        assert found is None, f"the message says {found[0]!r}"
