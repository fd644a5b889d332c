"""S7: mean latency in the Internet scenario."""

from ildm_bench.sim.experiments.stla.latency import experiment
from ildm_bench.sim.experiments.stla.scenarios import INTERNET

EXPERIMENT = experiment(
    INTERNET,
    "S7",
    "graphs differ by more than the two distributions do, and the paper does not say how many it took",
)
