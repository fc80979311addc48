"""The other indexes of the paper, with the contract of `index/contract.py`.

CryptEpsilonIndex           noise of scale N/epsilon on every point of the curve; loses rows
CryptEpsilonPublishedIndex  noise on each bin, summed, and bins looked up by the order of keys; loses rows
SpecialIndex                two curves with one-sided noise, below and above; loses no row, needs a delta
DPBPlusTreeIndex            noisy counts in a binary tree over the keys, dummy rows in every leaf
DPRMIIndex                  recursive model index, trained stage by stage with noisy gradients; needs a delta
FMIIndex                    mixture of experts, trained together with noisy gradients; needs a delta
FMIPerceptronsIndex         the same with the paper's perceptrons for experts; needs a delta
ExactIndex                  the curve itself; leaks, for comparison only

They are here to be compared with: for use, there is `DPPLRIndex`.
"""

from scumble.lab.comparators.crypt_epsilon_published import CryptEpsilonPublishedIndex
from scumble.lab.comparators.curves import CryptEpsilonIndex, ExactIndex, SpecialIndex
from scumble.lab.comparators.dp_bplus_tree import DPBPlusTreeIndex
from scumble.lab.comparators.dp_rmi import DPRMIIndex
from scumble.lab.comparators.fmi import FMIIndex
from scumble.lab.comparators.fmi_perceptrons import FMIPerceptronsIndex

__all__ = [
    "CryptEpsilonIndex",
    "CryptEpsilonPublishedIndex",
    "DPBPlusTreeIndex",
    "DPRMIIndex",
    "ExactIndex",
    "FMIIndex",
    "FMIPerceptronsIndex",
    "SpecialIndex",
]
