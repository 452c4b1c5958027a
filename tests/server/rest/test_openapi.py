"""Requests generated from the OpenAPI description, valid and almost valid, are all answered."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance

from tests.figures import figure
from tests.server.conftest import Serve

EXAMPLES = int(os.environ.get("REVERIE_SCHEMA_EXAMPLES", "2"))
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
# A feed that stays open is followed elsewhere.
LEFT_OUT = {"/api/changes"}
# For everybody, with a token or without.
OPEN = {"/healthz", "/login"}
CHECKS = [not_a_server_error, response_schema_conformance]


@schemathesis.serializer("application/x-ndjson")
def lines(ctx: Any, value: Any) -> bytes:
    """Whatever stands for an import, as its bytes."""
    return (
        value.encode("utf-8", "surrogatepass") if isinstance(value, str) else repr(value).encode()
    )


def test_no_generated_request_causes_a_server_error(serve: Serve) -> None:
    running = serve()
    space = running.store.space("default")
    known = space.remember("known")
    space.session("chat").append({"role": "user", "content": "hello"})
    headers = {"Authorization": f"Bearer {running.server_context.token}"}
    schema = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
    answered, chance = Counter[int](), random.Random(1)
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    for operation in operations:
        if operation.path in LEFT_OUT:
            continue
        for mode in MODES:
            try:
                strategy = operation.as_strategy(generation_mode=mode)
            except schemathesis.errors.SchemathesisError:
                continue

            @given(case=strategy)
            @settings(
                max_examples=EXAMPLES,
                derandomize=True,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            def check(case: Any) -> None:
                if "{id}" in case.path and chance.random() < 0.5:
                    # Much can be said only of what is there.
                    is_session = case.path.startswith("/api/sessions")
                    case.path_parameters["id"] = "chat" if is_session else known.id
                response = case.call(headers=headers, timeout=30)
                answered[response.status_code] += 1
                case.validate_response(response, checks=CHECKS)
                without_token, closed = case.call(timeout=30), case.path not in OPEN
                figure("answers of 2xx without a token", without_token.status_code < 300 and closed)
                assert without_token.status_code >= 400 or not closed, without_token.status_code

            check()
    figure("requests", sum(answered.values()))
    figure("answers of 5xx", sum(n for status, n in answered.items() if status >= 500))
    assert len(operations) > 40
    assert not [status for status in answered if status >= 500], answered
    assert answered[200] and answered[422], answered
    print(dict(answered))
