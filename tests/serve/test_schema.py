"""The description of the interface against the interface: whatever fits it, no request makes the server fail."""

from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

EXAMPLES = 12
CHECKS: list[CheckFunction] = [not_a_server_error, response_schema_conformance, content_type_conformance]
