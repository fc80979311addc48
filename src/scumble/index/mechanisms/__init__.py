"""The mechanisms that an index can be built with, by name. A new one is a file beside this and a line here.

`code` is the byte that stands for a mechanism in index files: once released, it never changes its meaning.
"""

from scumble.index.mechanisms.paper import PAPER
from scumble.index.mechanisms.scumble import SCUMBLE
from scumble.index.mechanisms.tree import Mechanism

__all__ = ["MECHANISMS"]

MECHANISMS: dict[str, Mechanism] = {mechanism.name: mechanism for mechanism in (SCUMBLE, PAPER)}
