"""The description of the interface against the interface: whatever is sent, the server does not fail."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from fada.serve.app import create_app
from fada.serve.desk import Desk
from fada.serve.project import Limits, Project
from fada.serve.server import listening
from tests.support.desks import put_document

EXAMPLES = 5
CHECKS: list[Any] = [not_a_server_error, response_schema_conformance, content_type_conformance]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on loopback with a document of three pages."""
    desk = Desk(Project(tmp_path_factory.mktemp("desk") / "project"), Limits(), model="medieval")
    put_document(desk, pages=3)
    opened = listening("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(desk), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{opened.getsockname()[1]}"
    server.should_exit = True
    thread.join()


BOUNDS = settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    deadline=None,
    derandomize=True,
)


def test_no_request_makes_the_server_fail(address: str) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json").exclude(path_regex="/events$")
    found: list[Any] = [*schema.get_all_operations()]
    operations = [result.ok() for result in found]
    assert len(operations) > 35
    for operation in operations:

        @BOUNDS
        @given(case=operation.as_strategy())
        def asked(case: Any) -> None:
            numbers = case.path_parameters or {}
            case.path_parameters = {n: v % 4 + 1 if isinstance(v, int) and v > 0 else v for n, v in numbers.items()}
            case.call_and_validate(checks=CHECKS, timeout=900)

        asked()


def test_the_page_of_the_interface_needs_no_network(address: str) -> None:
    import re
    from urllib.request import urlopen

    with urlopen(f"{address}/docs") as answer:
        text = answer.read().decode()
    assert "/api/lines/{line}/complete" in text
    assert re.findall(r"https?://(?!127)[^\s\"<]+", text) == []
    assert "<script" not in text


def test_every_operation_has_a_sentence(address: str, tmp_path: Path) -> None:
    import json
    from urllib.request import urlopen

    with urlopen(f"{address}/openapi.json") as answer:
        described = json.load(answer)
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert operation["description"].rstrip().endswith("."), (method, path)
