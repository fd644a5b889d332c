"""Schedules carried out in virtual time: real nodes, with disks and brokers that do as told."""
