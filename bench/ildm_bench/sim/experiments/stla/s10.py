"""S10: mean latency in the data centre scenario."""

from ildm_bench.sim.experiments.stla.latency import experiment
from ildm_bench.sim.experiments.stla.scenarios import DATA_CENTERS

EXPERIMENT = experiment(
    DATA_CENTERS,
    "S10",
    "STLA saves more here: a message crosses between the five data centres four times at most (Theorem 3), "
    "and about once on average. The paper's share is nearer to that of keys with places alone, which are "
    "entered at the farthest subscriber (last lines)",
)
