"""docs/gateway.md, as a reader would do it: every command, the configuration, and every piece of Python on the page."""

import re
import shlex
from pathlib import Path

import pytest

from scumble.cli import main
from scumble.gateway.config import Limits, hash_of, read_config
from scumble.gateway.serving import opened

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCK = re.compile(r"```(python|console|toml)\n(.*?)```", re.S)
ADDRESS = "127.0.0.1:31337"
SHOWN = "a token for the page"


def test_every_step_of_the_page_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GATEWAY_TOKEN", SHOWN)
    rows = "".join(f"n{n % 90},{n % 1000}.{n % 100:02}\n" for n in range(3000))
    Path("visits.csv").write_text("name,amount\n" + rows)
    steps = {kind: [text for found, text in BLOCK.findall(TEXT) if found == kind] for kind in ("console", "python")}
    (config,) = [text for kind, text in BLOCK.findall(TEXT) if kind == "toml"]
    config = re.sub(r"sha256:[0-9a-f]{64}", hash_of(SHOWN), config)
    Path("gateway.toml").write_text(config.replace(ADDRESS, "127.0.0.1:0"))
    assert (len(steps["console"]), len(steps["python"])) == (3, 4)
    for line in "".join(steps["console"]).splitlines():
        assert main(shlex.split(line)[2:]) == 0, (line, capsys.readouterr())
    with opened(read_config(Path("gateway.toml")), lambda line: None) as gateway:
        for text in steps["python"]:
            placed = text.replace(f"grpc://{ADDRESS}", gateway.location)
            exec(compile(placed, str(PAGE), "exec"), {"__name__": "page"})  # noqa: S102
    printed = capsys.readouterr().out
    assert "3000" in printed
    assert printed.endswith("clinic\n")


def test_the_limits_on_the_page_are_the_defaults() -> None:
    limits = Limits()
    assert f"`result_bytes` ({limits.result_bytes >> 30} GiB" in TEXT
    for name in ("results", "result_seconds", "statements", "statement_seconds", "transaction_seconds"):
        assert f"`{name}` ({getattr(limits, name)})" in TEXT
