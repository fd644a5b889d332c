"""PADRES in a cyclic overlay, for comparison: trees of advertisements, with identifiers.

After *Adaptive Content-Based Routing in General Overlay Topologies* (Li, Muthusamy, Jacobsen, Middleware
2008), in code of our own.
"""

from ildm_bench.sim.padres.brokers import Padres

__all__ = ["Padres"]
