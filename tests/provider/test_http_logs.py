"""What a front tells its operator: a log and figures without a byte of what it carries, and whether it can serve."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from fronts import DATABASE, NONCE, Fronting, fronting, until
from prometheus_client.parser import text_string_to_metric_families

PLANTED = b"planted-in-a-body-5f3a"
SECRETS = (
    "planted", "5f3a", "unknown-name", "token-77", "cookie-78", "query-79", "agent-80", "10.9.8.7", "\x1b", "\\u",
)  # fmt: skip
KEYS = {
    "time", "event", "status", "ms", "received", "sent", "tenant", "database", "enclave", "pid", "level", "by",
    "message", "error",
}  # fmt: skip


@pytest.fixture(name="front", scope="module")
def a_front_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronting]:
    """A front that nobody else asks anything, or may harm."""
    with fronting(tmp_path_factory.mktemp("logs") / "served", request_bytes=1 << 16) as it:
        yield it


def figures(front: Fronting) -> dict[str, float]:
    text = front.ask("GET", "/metrics").body.decode()
    return {
        ":".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def test_figures_are_those_of_the_traffic(front: Fronting) -> None:
    before = figures(front)
    for _ in range(3):
        front.ask("POST", "/v1/attest", NONCE)
    sizes = [len(front.ask("GET", "/v1/openapi.json").body), len(front.ask("GET", "/health").body)]
    front.ask("POST", "/v1/default/there/sessions/7", bytes(1000))
    front.ask("GET", "/v1/default/nowhere")
    front.ask("GET", "/nowhere")
    front.ask("POST", "/v1/default/there/sessions/7", bytes(1 << 17))
    after = figures(front)
    grown = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
    requests = {name: count for name, count in grown.items() if name.startswith("scumble_requests_total")}
    assert requests == {
        "scumble_requests_total:attest:200": 3,
        "scumble_requests_total:openapi:200": 1,
        "scumble_requests_total:health:200": 1,
        "scumble_requests_total:request:503": 1,
        "scumble_requests_total:request:413": 1,
        "scumble_requests_total:describe:404": 1,
        "scumble_requests_total:unknown:404": 1,
        "scumble_requests_total:metrics:200": 1,
    }
    assert grown["scumble_received_bytes_total"] == 3 * len(NONCE)  # nothing is read for a session that is not there
    assert grown["scumble_sent_bytes_total"] > sum(sizes)
    assert grown["scumble_request_seconds_count:attest"] == 3
    assert (after["scumble_enclaves"], after["scumble_sessions"]) == (1, 0)


def test_figures_do_not_grow_in_number_with_databases_clients_or_paths(front: Fronting) -> None:
    def ask(number: int) -> None:
        front.ask("GET", f"/v1/default/name-{number}", source=f"127.0.5.{number + 1}")
        front.ask("GET", f"/path-{number}", headers={"scumble-protocol": str(number)})
        front.ask("PUT", f"/v1/many/name-{number}", DATABASE.encode())
        front.ask("POST", f"/v1/many/name-{number}/sessions/{number}")

    ask(0)
    ask(2)
    figures(front)
    before = set(figures(front))
    for number in range(3, 40):
        ask(number)
    assert set(figures(front)) == before
    assert not any(re.search("many|name|path|127", name) for name in before)


def test_a_log_has_nothing_of_what_a_client_sends(front: Fronting) -> None:
    headers = {
        "authorization": "Bearer token-77",
        "cookie": "a=cookie-78",
        "user-agent": "agent-80",
        "x-forwarded-for": "10.9.8.7",
    }
    for path in ("/v1/attest", "/v1/default/there/sessions", "/v1/default/there/sessions/7", "/v1/default/there"):
        for method in ("GET", "POST", "PUT", "DELETE"):
            front.ask(method, path + "?a=query-79", PLANTED, headers)
    for status, name in ((404, "unknown-name"), (404, "unknown-name%0a%7b%22event%22:1%7d"), (404, "%1b[31munknown")):
        assert front.ask("GET", f"/v1/default/{name}", PLANTED).status == status
    assert front.ask("PUT", "/v1/default/unknown-name", PLANTED).status == 201  # it is the id, and no secret
    front.ask("GET", "/v1/unknown-name/x", headers={"scumble-protocol": "9"})
    front.ask("POST", "/v1/unknown-name/x/sessions", bytes(1 << 17))
    front.told(b"GET /unknown-name\x1b HTTP/1.1\r\n" + PLANTED + b"\r\n\r\n")
    front.told(b"GET /unknown-name\r\n{}\r\n\r\n")
    told = front.log().replace('"database": "unknown-name"', "")
    assert not any(secret in told for secret in SECRETS)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\xff]", told)


def test_every_line_of_a_log_is_an_object_of_known_fields(front: Fronting) -> None:
    for method, path in (("POST", "/v1/attest"), ("GET", "/health"), ("GET", "/metrics"), ("GET", "/nowhere")):
        front.ask(method, path)
    front.told(b"no HTTP at all\r\n\r\n")
    lines = front.lines()
    assert all(line.keys() <= KEYS for line in lines)
    assert all({"time", "event"} <= line.keys() for line in lines)
    assert {"event": "server", "level": "warning", "by": "uvicorn.error"}.items() <= lines[-1].items()
    answered = [line for line in lines if "status" in line]
    assert all({"ms", "received", "sent"} <= line.keys() for line in answered)
    assert {line["event"] for line in lines} >= {"enclave started", "attest", "create", "health", "unknown", "metrics"}


def test_a_database_that_is_there_is_named_in_the_log(front: Fronting) -> None:
    front.ask("GET", "/v1/default/there")
    line = front.lines()[-1]
    assert (line["event"], line["status"], line["tenant"], line["database"]) == ("describe", 200, "default", "there")


def test_without_an_enclave_the_front_says_so_goes_on_answering_and_recovers(front: Fronting) -> None:
    deaths = figures(front)["scumble_enclave_deaths_total"]
    (enclave,) = front.enclaves()
    os.kill(enclave, signal.SIGKILL)
    until(lambda: front.ask("GET", "/health").status == 503)
    with ThreadPoolExecutor(1) as one:
        waiting = one.submit(front.ask, "POST", "/v1/attest", NONCE)
        for _ in range(3):  # others are answered while somebody waits for an enclave
            health = front.ask("GET", "/health")
        assert (health.status, health.fields["enclaves"], health.fields["wanted"]) == (503, 0, 1)
        assert front.ask("GET", "/v1/default/there").status == 200
        assert not waiting.done()
        assert waiting.result().status == 200
    until(lambda: front.ask("GET", "/health").status == 200)
    assert front.enclaves() != [enclave]
    assert figures(front)["scumble_enclave_deaths_total"] == deaths + 1
    assert [line for line in front.lines() if line["event"] == "enclave died"]
