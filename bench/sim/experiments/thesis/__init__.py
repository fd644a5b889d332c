"""Thesis, chapters 3 and 4.

Figures and tables by the thesis's numbers: T3.7 is Figure 3.7. On converged Skip Graph tables, built at once
by `bench/sim/tables.py` and followed by `bench/sim/routing.py`; no plugin runs here, tests hold both to the
plugins message by message. Every node has one key. Scribe's DHT are rings, the Skip Graph's lists are lines.
"""

PLACE = 1
