"""For tests: a Python with other code installed. An enclave runs installed code alone, so nothing else gets into it."""

import sys
from pathlib import Path

__all__ = ["python_with"]


def python_with(folder: Path, *places: Path) -> str:
    """A virtual environment whose packages are in these places first, and then where this Python finds them."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages, program = folder / "lib" / version / "site-packages", folder / "bin" / "python"
    packages.mkdir(parents=True)
    program.parent.mkdir()
    base = Path(sys.base_prefix) / "bin" / version
    program.symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    found = [path for path in sys.path if "site-packages" in path]
    ours = str(Path(__file__).parents[2] / "src")
    lines = [*map(str, places), *([ours] if ours in sys.path else []), *found]
    (packages / "places.pth").write_text("\n".join(lines) + "\n")
    return str(program)
