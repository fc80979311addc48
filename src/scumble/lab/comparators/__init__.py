"""The other indexes of the paper, with the contract of `index/contract.py`; all that is public of them is here.

CryptEpsilonIndex           noise of scale N/epsilon on every point of the curve; loses rows
CryptEpsilonPublishedIndex  noise on each bin, summed, and bins looked up by the order of keys; loses rows
SpecialIndex                two curves with one-sided noise, below and above; loses no row, needs a delta
DPBPlusTreeIndex            noisy counts in a binary tree over the keys, dummy rows in every leaf
DPRMIIndex                  recursive model index, trained stage by stage with noisy gradients; needs a delta
FMIIndex                    mixture of experts, trained together with noisy gradients; needs a delta
FMIPerceptronsIndex         the same with the paper's perceptrons for experts; needs a delta
ExactIndex                  the curve itself; leaks, for comparison only

    index = SpecialIndex().fit(keys, domain=domain, budget=ledger.spend(1, "salary", delta=1e-5))
    index.lookup(40_000, 50_000)     # positions among the sorted rows
    index.save("special.index")
    load("special.index")            # any of them, and DPPLRIndex

`COMPARATORS` has all of them by the name that their files use. They are here to be compared with: for use, there is
`DPPLRIndex`. The enclave's measured code does not include them, so a table can have one in a program for research only:
`lab.research`. `lab.scans` runs their lookups over sealed pages without one. docs/results.md says what came out.
"""

from os import PathLike

from scumble.index import file
from scumble.index.contract import Index
from scumble.index.dp_plr import DPPLRIndex
from scumble.lab.comparators.crypt_epsilon_published import CryptEpsilonPublishedIndex
from scumble.lab.comparators.curves import CryptEpsilonIndex, ExactIndex, SpecialIndex
from scumble.lab.comparators.dp_bplus_tree import DPBPlusTreeIndex
from scumble.lab.comparators.dp_rmi import DPRMIIndex
from scumble.lab.comparators.fmi import FMIIndex
from scumble.lab.comparators.fmi_perceptrons import FMIPerceptronsIndex
from scumble.lab.comparators.saved import SavedIndex, decode

__all__ = [
    "COMPARATORS",
    "CryptEpsilonIndex",
    "CryptEpsilonPublishedIndex",
    "DPBPlusTreeIndex",
    "DPRMIIndex",
    "ExactIndex",
    "FMIIndex",
    "FMIPerceptronsIndex",
    "SpecialIndex",
    "load",
]

COMPARATORS: dict[str, type[SavedIndex]] = {
    kind.kind: kind
    for kind in (
        CryptEpsilonIndex,
        CryptEpsilonPublishedIndex,
        SpecialIndex,
        DPBPlusTreeIndex,
        DPRMIIndex,
        FMIIndex,
        FMIPerceptronsIndex,
        ExactIndex,
    )
}


def load(path: str | PathLike[str]) -> Index:
    """Read an index that was saved, whichever it is: a comparator, or a `DPPLRIndex`."""
    data = file.read_file(path)
    return DPPLRIndex.load(path) if data.startswith(file.MAGIC) else decode(data, COMPARATORS)
