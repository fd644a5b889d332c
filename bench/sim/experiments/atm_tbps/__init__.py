"""ATM-TBPS.

Figures by the numbers of the paper on flexible routing tables: A10 is its Figure 10.
"""

PLACE = 2
