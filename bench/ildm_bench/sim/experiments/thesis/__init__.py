"""Thesis, chapters 3 and 4.

Figures and tables by the thesis's numbers: T3.7 is Figure 3.7. On converged Skip Graph tables, built at once
by `bench/ildm_bench/sim/tables.py` and followed by `bench/ildm_bench/sim/routing.py`. Tests hold both to the
overlay below the plugins, message by message; a plugin itself runs in T3.8 alone, and has more keys than a
node here, which has one for each of its topics. Scribe's DHT are rings, the Skip Graph's lists are lines.
"""

PLACE = 1
