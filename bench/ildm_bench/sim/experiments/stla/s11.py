"""S11: distribution of latencies in the data centre scenario."""

from ildm_bench.sim.experiments.stla.distribution import experiment, shorter
from ildm_bench.sim.experiments.stla.scenarios import DATA_CENTERS

EXPERIMENT = experiment(DATA_CENTERS, "S11", lambda summary, scale: shorter(summary))
