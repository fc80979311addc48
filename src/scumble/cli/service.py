"""`scumble serve`, `tenant`, `attest` and `gateway`: databases at a service, and tools that speak Arrow Flight SQL.

A provider runs `serve` and `tenant`, which handle nothing secret. A client runs `attest`, which prints public facts. An
owner runs `gateway`, with the owner's keys; its log has a line for each call and never what was asked.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scumble.cli.database import Json, service_options
from scumble.cli.terminal import at, print_result
from scumble.errors import InvalidParameter, ScumbleError
from scumble.store.collecting import KEPT

if TYPE_CHECKING:
    from scumble.gateway.server import Gateway

__all__ = ["attest", "gateway", "serve", "tenant"]

_PINNED = "A client that connects for the first time pins this measurement beside its key file; --measurement sets it."
RESEARCH_PROGRAM = "scumble.lab.enclave"
Served = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder of all tenants' databases.", show_default=False)
]


def serve(
    context: typer.Context,
    folder: Served,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="P", min=0, max=65535, help="0 takes a free one.")] = 7300,
    enclaves: Annotated[int, typer.Option(metavar="K", min=1, help="Enclave processes.")] = 2,
    attestation: Annotated[
        str,
        typer.Option(metavar="HOW", help="Where evidence comes from: auto, tsm (SEV-SNP or TDX), simulated."),
    ] = "auto",
    endorsements: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Certificates or collateral that the host does not provide.")
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open", help="Let anyone make databases, without a tenant's token.")
    ] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A certificate for TLS (scumbles://).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key.")] = None,
    max_request: Annotated[
        int, typer.Option(metavar="MIB", min=17, help="The largest request, in MiB: a load sends 16 at a time.")
    ] = 32,
    requests_per_second: Annotated[
        float, typer.Option(metavar="N", min=1, help="The most from one address; more have to wait.")
    ] = 5000,
    connections: Annotated[int, typer.Option(metavar="N", min=1, help="The most connections altogether.")] = 2000,
    connections_per_address: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="The most from one address; behind a proxy, as many as --connections."),
    ] = 512,
    waiting_per_tenant: Annotated[
        int, typer.Option(metavar="N", min=1, help="Requests of a tenant that may wait for their turn.")
    ] = 512,
    memory: Annotated[
        int,
        typer.Option(metavar="MIB", min=64, help="For requests and answers in flight; a quarter of it for a tenant."),
    ] = 1024,
    keep_versions: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Manifests that are kept whole; of older versions only the signatures."),
    ] = KEPT,
    check: Annotated[bool, typer.Option("--check", help="Start the enclaves, check their evidence, and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Write no log.")] = False,
) -> None:
    """Serve encrypted databases to their owners. For a provider.

    An HTTP front passes sealed bytes to K enclave processes, and only those can
    open them. An enclave that dies is replaced. SIGTERM finishes the requests
    and the builds under way, then stops. The log goes to stderr, one JSON object a line; /health
    and /metrics (Prometheus) are served as well.

    Tenants need a token to make databases: see `scumble tenant`. They take turns
    at the enclaves, then their databases, addresses and sessions do; who has too
    much under way is asked to wait (429). A query ends when its client hangs up.

    \b
    scumble tenant /srv/scumble acme
    scumble serve /srv/scumble --host 0.0.0.0 --port 7300 --enclaves 4
    scumble serve demo --open --attestation simulated
    scumble serve /srv/scumble --check

    Without a confidential VM there is only simulated evidence, which proves
    nothing: clients refuse it unless they ask for it.
    """
    from scumble.provider.fleet import PROGRAM, Fleet
    from scumble.provider.limits import Limits
    from scumble.provider.observe import Log
    from scumble.provider.server import Settings
    from scumble.provider.server import serve as run

    program = RESEARCH_PROGRAM if context.find_root().params.get("research") else PROGRAM
    settings = Settings(
        folder,
        host,
        port,
        enclaves,
        attestation,
        endorsements,
        open_to_all,
        tls_certificate,
        tls_key,
        Limits(
            request_bytes=max_request << 20,
            tenant_bytes=memory << 18,
            all_bytes=memory << 20,
            requests_per_second=requests_per_second,
            connections=connections,
            connections_per_address=connections_per_address,
            waiting_per_tenant=waiting_per_tenant,
        ),
        program,
        keep_versions,
    )
    if check:
        Fleet(enclaves, attestation, endorsements=endorsements, program=program).close()
        typer.echo(f"{enclaves} enclaves start and show evidence ({attestation})")
        return

    def ready(taken: int) -> None:
        typer.echo(f"serving {folder} at {'scumbles' if tls_certificate else 'scumble'}://{at(host, taken)}")

    run(settings, ready, Log(None) if quiet else None)


def tenant(
    folder: Served,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tenant; `default` for addresses without one.")],
    print_json: Json = False,
) -> None:
    """Let a tenant make databases: print the token that `scumble init` needs.

    Only the token's hash is stored. A second call for the same tenant makes a new
    token, and the old one stops working. A token gives no access to any data.

    \b
    scumble tenant /srv/scumble acme
    SCUMBLE_TOKEN=... scumble init scumble://host:7300/acme/clinic
    """
    from scumble.provider.hosting import add_tenant

    token = add_tenant(folder, name)
    lines = [f"{name} may make databases with this token, which is shown only once:", token]
    print_result({"tenant": name, "token": token}, lines, as_json=print_json)


def attest(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="scumble://HOST:PORT/NAME; the name does not matter.", show_default=False),
    ],
    print_json: Json = False,
) -> None:
    """Verify an enclave's evidence, and print the measurement of its code.

    Compare the measurement with one that you, or somebody you trust, computed
    from the published code: only then do you know which code runs. Nothing is
    sent, nothing is pinned, and no key is needed.

    \b
    scumble attest scumble://host:7300/clinic
    scumble query scumble://host:7300/clinic "SELECT ..." --measurement 3f0a...
    """
    from scumble.owner.remote.address import Address, is_address
    from scumble.owner.remote.service import Connecting, verified

    if not is_address(url):
        raise InvalidParameter(
            "only an enclave at a service has evidence", hint="name one, such as scumble://host:7300/db"
        )
    verdict = verified(Address.parse(url), Connecting(**service_options(warned=False)))
    facts = {"kind": verdict.kind, "measurement": verdict.measurement}
    details = dict(verdict.details)
    lines = [f"{name:<12} {value}" for name, value in (*facts.items(), *details.items())]
    print_result({**facts, "details": details}, [*lines, _PINNED], as_json=print_json)


def gateway(
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="The configuration, a TOML file.", show_default=False)
    ] = None,
    *,
    new_token: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Make a token for a client: print it and its line for CONFIG."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Read CONFIG, open its databases, and stop.")] = False,
    print_json: Json = False,
) -> None:
    """Serve databases to tools that speak Arrow Flight SQL: ADBC, JDBC, pandas, polars.

    It runs on your side, with your keys: anyone with one of its tokens can read
    everything in its databases. The file holds hashes of tokens, not the tokens.

    \b
    scumble gateway --new-token alice
    scumble gateway gateway.toml --check
    scumble gateway gateway.toml
    """
    if (config is None) == (new_token is None) or (check and config is None):
        raise InvalidParameter("the gateway needs a configuration", hint="name CONFIG, or use --new-token alone")
    if new_token is not None:
        _make_token(new_token, as_json=print_json)
    elif config is not None:
        _serve(config, check_only=check, as_json=print_json)


def _make_token(name: str, *, as_json: bool) -> None:
    from scumble.gateway.config import NAME, hash_of, new_token

    if NAME.fullmatch(name) is None:
        raise InvalidParameter("this cannot be a client's name", hint="a letter, then letters, digits, _ or -")
    token = new_token()
    line = f'{name} = "{hash_of(token)}"'
    lines = [f"token for {name}, shown only once: {token}", "under [tokens] in the configuration:", line]
    print_result({"client": name, "token": token, "line": line}, lines, as_json=as_json)


def _serve(path: Path, *, check_only: bool, as_json: bool) -> None:
    from scumble.gateway.config import read_config

    config = read_config(path)
    try:
        from scumble.gateway.serving import check, serve
    except ImportError as error:
        raise ScumbleError(
            f"the gateway needs {error.name or 'protobuf'}", hint="pip install 'scumble[gateway]'"
        ) from error

    def ready(gateway: "Gateway") -> None:
        names = sorted(config.databases)
        lines = [f"listening at {gateway.location} for {', '.join(names)}"]
        print_result({"listening": gateway.location, "databases": names}, lines, as_json=as_json)

    if not check_only:
        serve(config, ready)
        return
    tables = check(config)
    lines = [f"{name}: {', '.join(names) or 'no tables'}" for name, names in tables.items()]
    print_result({"databases": tables}, lines, as_json=as_json)
