"""Which cooperation algorithm fits a network: ``ildm advise``."""

from ildm.advice.network import PREFERENCES, Network, Preference, Topic, load_network
from ildm.advice.rule import ENTRIES, NAMES, Advice, Estimate, advise

__all__ = [
    "ENTRIES",
    "NAMES",
    "PREFERENCES",
    "Advice",
    "Estimate",
    "Network",
    "Preference",
    "Topic",
    "advise",
    "load_network",
]
