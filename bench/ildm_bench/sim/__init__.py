"""Simulation of overlays: converged tables as arrays (thesis 3.4, 4.1) and nodes over a virtual network."""
