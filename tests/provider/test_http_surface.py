"""The HTTP surface keeps to its description, whatever is asked of it."""

import re
from typing import Any

import pytest
import schemathesis
from fronts import DATABASE, Fronting
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import checks

from scumble.provider.openapi import DATABASE_ID, NAME, OPERATIONS, description

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND")
MOST = 1 << 20
HEADERS = ("authorization", "scumble-protocol", "content-type", "accept", "cookie", "x-forwarded-for", "expect", "te")
STATED = {200, 201, 204, 400, 404, 405, 409, 413, 426, 503}

ALLOWED = schemathesis.Config.from_dict(
    {
        "checks": {
            "not_a_server_error": {"expected-statuses": ["2xx", "4xx", 503]},
            "negative_data_rejection": {"expected-statuses": ["4xx", 503]},
        }
    }
)
DESCRIBED = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
    checks.allow_header_conformance,
]
Case = schemathesis.Case[Any]
surface = schemathesis.openapi.from_dict(description(), config=ALLOWED)


def test_the_description_names_each_operation_once_and_is_served(front: Fronting) -> None:
    served = front.ask("GET", "/v1/openapi.json")
    assert served.fields == description()
    assert len({operation.kind for operation in OPERATIONS}) == len(OPERATIONS) == 13


@surface.parametrize()
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described(case: Case, front: Fronting) -> None:
    assert described(case, front, *DESCRIBED, checks.negative_data_rejection) in STATED


@pytest.mark.slow
@surface.parametrize()
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_every_one_of_many_answers_is_as_described(case: Case, front: Fronting) -> None:
    assert described(case, front, *DESCRIBED, checks.negative_data_rejection) in STATED


def described(case: Case, front: Fronting, *checked: schemathesis.CheckFunction) -> int:
    """The status of an answer that passes these checks."""
    response = case.call(base_url=f"http://127.0.0.1:{front.port}")
    case.validate_response(response, checks=list(checked))
    return response.status_code


@surface.include(path_regex="tenant").parametrize()
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
def test_every_answer_about_a_database_that_is_there_is_as_described(case: Case, front: Fronting) -> None:
    case.path_parameters.update(tenant="default", database="there")
    assert described(case, front, *DESCRIBED) in STATED


def paths() -> list[str]:
    """Every path there is, to the one database that there is."""
    named = {"tenant": "default", "database": "there", "session": 7}
    return [path.format(**named) for path in description()["paths"]]


@pytest.mark.parametrize("path", [*paths(), "/", "/v1", "/v1/default/nowhere"])
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(
    method=st.sampled_from(METHODS),
    body=st.binary(max_size=300),
    query=st.text("abc=&;%0123456789_", max_size=20),
    headers=st.dictionaries(st.sampled_from(HEADERS), st.text("azAZ09 ,;=%~\xe9\xff", max_size=20), max_size=3),
)
def test_any_bytes_at_any_endpoint_get_an_answer_that_is_stated(
    front: Fronting, path: str, method: str, body: bytes, query: str, headers: dict[str, str]
) -> None:
    answer = front.ask(method, f"{path}?{query}", body, {name: text.strip() for name, text in headers.items()})
    assert answer.status in STATED
    if answer.status >= 400 and answer.body and not path.startswith("/health"):
        assert answer.fields.keys() == {"error", "message", "hint"}


NAMES = [
    "../there", "default/..", "default/.", "./there", "default/there/", "/default/there", "default//there",
    "default%2fthere", "default/%2e%2e", "%64efault/there", "default/there%00", "default/there%0a", "DEFAULT/there",
    "default/There", "default/th%C3%A9re", "default/there.", "default/tenants.json", "-a/there", "default/" + "a" * 65,
    "default/" + "a" * 4000, "default/there;a=b", "default/there%20", "default\\there", "default/runs%5c",
]  # fmt: skip


def test_a_name_leads_to_its_own_database_and_nowhere_else(front: Fronting) -> None:
    before = set(front.folder.rglob("*"))
    for names in NAMES:
        for method in ("GET", "PUT"):
            assert front.ask(method, f"/v1/{names}", DATABASE.encode()).status == 404, names
        assert front.ask("POST", f"/v1/{names}/sessions", bytes(100)).status in (404, 405), names
    assert set(front.folder.rglob("*")) == before


def test_a_path_has_one_spelling(front: Fronting) -> None:
    for path in ("/%68ealth", "/metrics/", "//metrics", "/%6Detrics", "/v1/../metrics", "/./health"):
        assert front.ask("GET", path).status == 404, path


def test_an_id_that_is_none_makes_nothing(front: Fronting) -> None:
    for database in (b"", b"\xff\xfe", b"a b", b"../../etc", "caf\u00e9".encode(), b"A" * 20, b"a" * 101):
        assert front.ask("PUT", "/v1/fresh/new", database).status == 400
        assert front.ask("PUT", "/v1/default/there", database).status == 400
    assert not (front.folder / "fresh").exists()


def test_a_session_has_a_number_of_bounded_length(front: Fronting) -> None:
    for number in ("9" * 5000, "9" * 20, "-1", "1.0", "0x1", "1e3", "%31", "1_0"):
        assert front.ask("POST", f"/v1/default/there/sessions/{number}").status == 404
    assert front.ask("POST", "/v1/default/there/sessions/9999999999999999999").status == 503
    assert front.ask("PUT", "/v1/default/there/sessions/7/writer?busy_seconds=nan").status == 400
    assert front.ask("PUT", "/v1/default/there/sessions/7/writer?busy_seconds=-1").status == 400


def test_the_description_and_the_front_agree_on_names(front: Fronting) -> None:
    for name in ("a", "0", "a-b_c", "a" * 64):
        assert re.fullmatch(NAME, name)
        assert front.ask("PUT", f"/v1/agree/{name}", b"0-a").status == 201
    assert re.fullmatch(DATABASE_ID, "0-a")
