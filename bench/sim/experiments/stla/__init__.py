"""STLA.

Figures by the numbers of the paper on locality-aware overlays: S7 is its Figure 7.
"""

PLACE = 3
