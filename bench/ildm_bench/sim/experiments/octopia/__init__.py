"""OctopiA.

Figures by the numbers of the paper *Eliminating Tight Coupling using Subscriptions Subgrouping in
Structured Overlays*: O7 is its Figure 7, of section 10. Its overlay has 14 regions and 4 clusters, 56
brokers; ours too, with the edge brokers of each inner one as we chose. OctopiA here is the plugin's tables
and routing (`algorithms/ildm_algorithms/octopia`) in the event model of `bench/ildm_bench/sim/brokers.py`,
which goes without acknowledgements and liveness, and tests hold its copies to those of the plugin. PADRES, in
the same model, is code of our own after its paper. OctopiA's paper gives no times at all, so each figure is
drawn under several *costs*, and a row says *open* where they disagree: **constant**: a hop 1 ms, matching 1
ms and 0.4 us for each row of the table, sending 0.5 ms for each copy, one after the other; **exponential**:
the same, but hops are drawn with that mean; **links apart**: the same, but each link sends for itself; **hops
alone**: only hops take time, drawn, 3.5 ms on average, and rows. **Fitted** costs (O10 to O15) and those with
**payload** (O17 to O20) were searched for, so they show a sufficient cause and not what the authors had.
Publishers advertise one symbol of 500,
subscriptions take a range of 10 (2 %) or 20 (4 %), on brokers drawn at random. Every figure is a mean of
seeds; in brackets stand the smallest and the largest.
"""

PLACE = 4
