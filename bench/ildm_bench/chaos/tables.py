"""The columns of histories as tables of Arrow.

Apart from `ildm_bench.chaos.history`, as a process takes longer to fork with Arrow in it, and each batch
of runs in virtual time is a fork.
"""

from __future__ import annotations

import pyarrow as pa

EVENTS = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),  # ordinal of the event in its run, from 0
        pa.field("t", pa.float64(), nullable=False),  # seconds, on one clock for all of the run
        pa.field("process", pa.string(), nullable=False),  # client identifier, node/x, broker/x or nemesis
        pa.field("op", pa.string(), nullable=False),  # one of `OPS`
        pa.field("phase", pa.string(), nullable=False),  # one of `PHASES`
        pa.field("site", pa.string(), nullable=False),
        pa.field("incarnation", pa.int32(), nullable=False),  # life of the site's broker, or of the process
        pa.field("session", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("qos", pa.int8(), nullable=False),
        pa.field("retain", pa.bool_(), nullable=False),
        pa.field("dup", pa.bool_(), nullable=False),
        pa.field("publisher", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),  # of the publisher, rising; -1 where there is none
        pa.field("value", pa.string(), nullable=False),  # `digest` of the payload; empty for an empty one
        pa.field("detail", pa.string(), nullable=False),  # JSON, for people; excuses look for PUBREC in it
    ]
)
RUNS = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("engine", pa.string(), nullable=False),  # virtual or live
        pa.field("target", pa.string(), nullable=False),  # ildm, or bridge
        pa.field("algorithm", pa.string(), nullable=False),
        pa.field(
            "broker", pa.string(), nullable=False
        ),  # make; several with + between, in order of the sites
        pa.field("store", pa.string(), nullable=False),  # of brokers that were killed: kept or lossy
        pa.field("mode", pa.string(), nullable=False),  # spool.mode
        pa.field("sites", pa.int32(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("fault", pa.string(), nullable=False),  # kinds of fault, sorted, + between; none
        pa.field("began", pa.string(), nullable=False),  # wall time, ISO 8601; empty in virtual time
        pa.field("seconds", pa.float64(), nullable=False),  # of the run's own clock
        pa.field(
            "settle", pa.float64(), nullable=False
        ),  # s without a fault, from SUBACK on, until it is known everywhere
        pa.field("complete", pa.bool_(), nullable=False),  # all faults were healed, and quiet was waited for
        pa.field("note", pa.string(), nullable=False),  # what whoever reads the report should know
    ]
)
