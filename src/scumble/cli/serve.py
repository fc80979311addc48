"""`scumble serve` and `scumble tenant`: the provider's commands. Nothing secret is in their hands."""

import json
from pathlib import Path
from typing import Annotated

import typer

from scumble.cli.database import Json

__all__ = ["serve", "tenant"]

Served = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder of all tenants' databases.", show_default=False)
]


def serve(
    folder: Served,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="P", min=0, max=65535, help="0 takes a free one.")] = 7300,
    enclaves: Annotated[int, typer.Option(metavar="K", min=1, help="Enclave processes.")] = 2,
    attestation: Annotated[
        str,
        typer.Option(metavar="HOW", help="Where evidence comes from: auto, tsm (SEV-SNP or TDX), simulated."),
    ] = "auto",
    endorsements: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Certificates or collateral that the host does not hand out.")
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open", help="Let anybody make databases, without a tenant's token.")
    ] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A certificate for TLS (scumbles://).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key.")] = None,
    max_request: Annotated[
        int, typer.Option(metavar="MIB", min=17, help="The largest request, in MiB: a load sends 16 at a time.")
    ] = 32,
    requests_per_second: Annotated[
        float, typer.Option(metavar="N", min=1, help="From one address, before it is asked to wait.")
    ] = 5000,
    check: Annotated[
        bool, typer.Option("--check", help="Start the enclaves, see that they show evidence, and end.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Write no log.")] = False,
) -> None:
    """Serve encrypted databases to their owners. For a provider.

    An HTTP front that carries sealed bytes, and K enclave processes that alone can
    open them. An enclave that dies is replaced; SIGTERM answers what is under way,
    then ends. The log goes to stderr, one JSON object to a line; /health and
    /metrics (Prometheus) are there as well.

    Tenants make their databases with a token: see `scumble tenant`.

    \b
    scumble tenant /srv/scumble acme
    scumble serve /srv/scumble --host 0.0.0.0 --port 7300 --enclaves 4
    scumble serve demo --open --attestation simulated
    scumble serve /srv/scumble --check

    Without a confidential VM there is only simulated evidence, which proves
    nothing: clients refuse it unless they are told to take it.
    """
    from scumble.provider.fleet import Fleet
    from scumble.provider.limits import Limits
    from scumble.provider.observe import Log
    from scumble.provider.server import Settings
    from scumble.provider.server import serve as run

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
        Limits(request_bytes=max_request << 20, requests_per_second=requests_per_second),
    )
    if check:
        Fleet(enclaves, attestation, endorsements=endorsements).close()
        typer.echo(f"{enclaves} enclaves start, and show evidence ({attestation})")
        return

    def ready(taken: int) -> None:
        typer.echo(f"serving {folder} at {'scumbles' if tls_certificate else 'scumble'}://{host}:{taken}")

    run(settings, ready, Log(None) if quiet else None)


def tenant(
    folder: Served,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tenant; `default` for addresses without one.")],
    print_json: Json = False,
) -> None:
    """Let a tenant make databases: print the token that `scumble init` needs.

    The token is kept nowhere, only its hash. A second call for the same tenant
    makes a new token, and the old one is void. It gives no access to any data.

    \b
    scumble tenant /srv/scumble acme
    SCUMBLE_TOKEN=... scumble init scumble://host:7300/acme/clinic
    """
    from scumble.provider.hosting import add_tenant

    token = add_tenant(folder, name)
    if print_json:
        typer.echo(json.dumps({"tenant": name, "token": token}))
        return
    typer.echo(f"{name} may make databases with this token, which is shown only now:")
    typer.echo(token)
