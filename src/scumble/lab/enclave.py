"""The enclave for research: the ordinary enclave process, which also builds comparators.

    python -I -m scumble.lab.enclave --attestation simulated FD [FD ...]

It is another program, whose measurement covers the lab as well: a client that expects the ordinary enclave refuses it,
so nobody gets comparators by accident. `scumble --research serve` starts it. SECRET: everything in its memory.
"""

from scumble.enclave import process
from scumble.lab import research

__all__ = ["MORE_CODE", "main"]

MORE_CODE = ("lab",)
"""What is measured besides the ordinary enclave's code."""


def main() -> None:
    """Learn the comparators, then serve as `scumble.enclave.process` does."""
    research.enable()
    process.main(MORE_CODE)


if __name__ == "__main__":
    main()
