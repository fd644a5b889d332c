"""S9: routing locality in the Internet scenario."""

from ildm_bench.sim.experiments.stla.locality import experiment
from ildm_bench.sim.experiments.stla.scenarios import INTERNET

EXPERIMENT = experiment(INTERNET, "S9", "the graphs of the two distributions overlap")
