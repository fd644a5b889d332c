"""Nodes of the core in virtual time: everything real but time, chance, TCP, disks and brokers."""
