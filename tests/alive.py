"""For tests of forward secrecy: which private keys exist in this process, wherever they are referred to from."""

import gc
from collections.abc import Iterator

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

__all__ = ["private_keys"]


def private_keys() -> Iterator[X25519PrivateKey]:
    """Every private key that anything refers to.

    Keys are not tracked by the collector, and neither is a tuple of nothing else: both are looked for in what is.
    """
    gc.collect()
    seen: set[int] = set()
    for holder in gc.get_objects():
        found = gc.get_referents(holder)
        while found:
            each = found.pop()
            if isinstance(each, X25519PrivateKey):
                if id(each) not in seen:
                    seen.add(id(each))
                    yield each
            elif isinstance(each, tuple | dict) and not gc.is_tracked(each):
                found += gc.get_referents(each)
