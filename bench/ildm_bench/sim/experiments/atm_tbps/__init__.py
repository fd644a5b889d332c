"""ATM-TBPS.

Figures by the numbers of the paper on adaptive topologies: A10 is its Figure 10. Three times the same runs,
on converged tables, built at once by `bench/ildm_bench/sim/tables.py`; `bench/ildm_bench/sim/flexible.py`
fills the flexible ones with all that can be learned, and tests hold that to the plugin, table by table and
message by message.
"""

PLACE = 2
