"""STLA: SG-TBPS made aware of where sites are (Teranishi, Banno, Akiyama, GLOBECOM 2015)."""

from ildm_algorithms.stla.plugin import Stla, StlaConfig

__all__ = ["Stla", "StlaConfig"]
