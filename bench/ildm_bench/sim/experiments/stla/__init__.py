"""STLA.

Figures by the numbers of the paper *Scalable and Locality-Aware Distributed Topic-based Pub/Sub Messaging for
IoT*: S7 is its Figure 7. On converged tables built at once and followed by `bench/ildm_bench/sim/routing.py`,
with places and latencies of `bench/ildm_bench/sim/clusters.py`. Tests hold STLA's trees, start nodes and all,
to those of its plugin, message by message. *ST* is SG-TBPS with SFB, as in the paper: below the subscriber at
which a message enters tests hold its trees to the plugin's, too; where it enters is not held, as the plugin's
publisher has more keys. One publisher, placed like the subscribers, each of which has a node of its own. A
delivery takes the sum of its hops from the publisher; nothing is added at nodes. Zipf: the i-th most popular
of the clusters in one cluster has the weight 1/i, at every layer; which one that is, is random. A hop's
latency is Gaussian with a deviation of 10 % of its mean, which the paper does not state. Values are means of
10 graphs or more, each with places, vectors and latencies of its own; in brackets stand the smallest and the
largest.
"""

PLACE = 3
