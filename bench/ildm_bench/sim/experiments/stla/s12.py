"""S12: routing locality in the data centre scenario."""

from ildm_bench.sim.experiments.stla.locality import experiment
from ildm_bench.sim.experiments.stla.scenarios import DATA_CENTERS

EXPERIMENT = experiment(
    DATA_CENTERS,
    "S12",
    "with five data centres some 30 of 100,000 messages cross between them, however large each is",
)
