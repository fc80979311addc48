"""The configuration, where every mistake is named with its field; and the command, from start to a graceful stop."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi

from scumble.cli import main
from scumble.errors import FileError, InvalidParameter
from scumble.gateway.config import DatabaseConfig, Limits, hash_of, read_config
from scumble.gateway.server import Gateway

TOKENS = f'[tokens]\nalice = "{hash_of("secret")}"\n'
DATABASES = '[databases.clinic]\ntarget = "clinic"\n'
GOOD = TOKENS + DATABASES
PEM = "-----BEGIN CERTIFICATE-----\n", "-----BEGIN PRIVATE KEY-----\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "gateway.toml"
    path.write_text(text)
    return path


def shop(sources: dict[str, DatabaseConfig]) -> str:
    return TOKENS + f'[databases.shop]\ntarget = "{sources["shop"].target}"\n'


def test_a_small_configuration_has_safe_defaults(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, GOOD))
    assert (config.host, config.port, config.default, config.tls) == ("127.0.0.1", 31337, "clinic", None)
    assert config.databases == {"clinic": DatabaseConfig(str(tmp_path / "clinic"))}
    assert config.limits == Limits()


def test_a_full_configuration_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSPHRASE", "hidden")
    for name, content in zip(("c.pem", "k.pem"), PEM, strict=True):
        (tmp_path / name).write_text(content)
    text = (
        'listen = "0.0.0.0:0"\ndefault = "shop"\n'
        + GOOD
        + '[databases.shop]\ntarget = "scumble://host:7300/shop"\nkey = "shop.key"\n'
        + 'passphrase_env = "SHOP_PASSPHRASE"\nmeasurement = "00"\n'
        + '[tls]\ncertificate = "c.pem"\nkey = "k.pem"\n[limits]\nresults = 3\n'
    )
    config = read_config(written(tmp_path, text))
    shop = config.databases["shop"]
    assert (shop.target, shop.key, shop.passphrase()) == ("scumble://host:7300/shop", tmp_path / "shop.key", "hidden")
    assert dict(shop.service_options) == {"measurement": "00"}
    assert config.tls is not None
    assert config.limits.results == 3
    assert "hidden" not in repr(config)
    assert "PRIVATE" not in repr(config)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (DATABASES, "tokens is empty"),
        (TOKENS, "databases is empty"),
        ('[tokens]\nalice = "secret"\n' + DATABASES, "tokens.alice is not sha256"),
        ("[tokens]\nalice = 3\n" + DATABASES, "tokens.alice is not sha256"),
        (GOOD.replace("alice", '"a b"'), "tokens has a name that is not allowed"),
        (TOKENS + f'bob = "{hash_of("secret")}"\n' + DATABASES, "same token for two clients"),
        ("tokens = 3\n" + DATABASES, "tokens is not a table"),
        (TOKENS + "[databases]\nclinic = 3\n", "databases.clinic is not a table"),
        (TOKENS + "[databases.clinic]\n", "databases.clinic.target is missing"),
        (GOOD + "key = 3\n", "databases.clinic.key is not text"),
        (GOOD + 'password = "x"\n', "databases.clinic.password is not a setting"),
        (GOOD + 'passphrase_env = "NOT_SET_ANYWHERE"\n', "passphrase_env names NOT_SET_ANYWHERE"),
        (GOOD + "insecure_simulated_enclave = 1\n", "insecure_simulated_enclave is neither"),
        (GOOD + '[databases.shop]\ntarget = "s"\n', "default names no database"),
        ('default = "shop"\n' + GOOD, "default names no database"),
        ('listen = "nowhere"\n' + GOOD, "listen is not a host and port"),
        ('listen = "127.0.0.1:99999"\n' + GOOD, "listen is not a host and port"),
        ("listen = 31337\n" + GOOD, "listen is not text"),
        ('listen = "0.0.0.0:31337"\n' + GOOD, "listen is not on this machine"),
        ('listen = "example.org:31337"\n' + GOOD, "listen is not on this machine"),
        ('listen = "[::]:31337"\n' + GOOD, "listen is not on this machine"),
        ("insecure = 1\n" + GOOD, "insecure is neither true nor false"),
        ("port = 3\n" + GOOD, "port is not a setting"),
        (GOOD + '[tls]\ncertificate = "none.pem"\nkey = "none.pem"\n', "tls.certificate cannot be read"),
        (GOOD + '[tls]\ncertificate = "gateway.toml"\nkey = "x"\n', "tls.certificate names a file that is not PEM"),
        (GOOD + "[tls]\n", "tls.certificate is missing"),
        ("tls = 3\n" + GOOD, "tls is not a table"),
        (GOOD + "[limits]\nresults = 0\n", "limits.results is not a whole number"),
        (GOOD + "[limits]\nresult_bytes = true\n", "limits.result_bytes is not a whole number"),
        (GOOD + "[limits]\nrows = 3\n", "limits.rows is not a setting"),
        ("limits = 3\n" + GOOD, "limits is not a table"),
    ],
)
def test_a_mistake_is_named_with_its_field_and_a_hint(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        read_config(written(tmp_path, text))
    assert field in caught.value.message
    assert caught.value.hint


def test_a_file_that_is_not_there_or_not_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot read"):
        read_config(tmp_path / "none.toml")
    with pytest.raises(FileError, match="is not TOML"):
        read_config(written(tmp_path, "= ="))
    (tmp_path / "gateway.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match="is not TOML"):
        read_config(tmp_path / "gateway.toml")


@pytest.mark.parametrize("listen", ["localhost:0", "[::1]:0", "127.0.0.2:0"])
def test_loopback_needs_no_tls(tmp_path: Path, listen: str) -> None:
    assert read_config(written(tmp_path, f'listen = "{listen}"\n' + GOOD)).port == 0


def test_insecure_has_to_be_written(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, 'insecure = true\nlisten = "0.0.0.0:1"\n' + GOOD)).host == "0.0.0.0"  # noqa: S104


def test_a_new_token_comes_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "--new-token", "alice", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["line"] == f'alice = "{hash_of(made["token"])}"'
    assert main(["gateway", "--new-token", "alice"]) == 0
    assert "shown only once" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["--check"], ["a.toml", "--new-token", "x"], ["--new-token", "a b"], ["none.toml"]]
)
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", *arguments]) == 2
    assert "hint: " in capsys.readouterr().err


def test_check_lists_the_tables_and_refuses_what_does_not_open(
    tmp_path: Path, sources: dict[str, DatabaseConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    text = shop(sources)
    assert main(["gateway", str(written(tmp_path, text)), "--check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"databases": {"shop": ["words", "wordy"]}}
    assert main(["gateway", str(written(tmp_path, text)), "--check"]) == 0
    assert capsys.readouterr().out == "shop: words, wordy\n"
    assert main(["gateway", str(written(tmp_path, GOOD)), "--check"]) == 2
    assert "databases.clinic cannot be opened" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully(
    tmp_path: Path, sources: dict[str, DatabaseConfig], number: signal.Signals
) -> None:
    text = 'listen = "127.0.0.1:0"\n' + shop(sources)
    command = [sys.executable, "-m", "scumble.cli", "gateway", str(written(tmp_path, text)), "--json"]
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=paths) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["databases"] == ["shop"]
        header = {DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer secret"}
        with (
            dbapi.connect(ready["listening"], db_kwargs=header, autocommit=True) as connection,
            connection.cursor() as asked,
        ):
            assert asked.execute("SELECT count(*) FROM words").fetchone() == (3,)
        process.send_signal(number)
        _, log = process.communicate(timeout=60)
        assert process.returncode == 0
    lines = [json.loads(line) for line in log.splitlines()]
    assert {line["status"] for line in lines} == {"ok"}


def test_a_port_that_is_taken_is_told(tmp_path: Path, sources: dict[str, DatabaseConfig], gateway: Gateway) -> None:
    text = f'listen = "127.0.0.1:{gateway.port}"\n' + shop(sources)
    assert main(["gateway", str(written(tmp_path, text))]) == 2
