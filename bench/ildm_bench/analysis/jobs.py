"""The jobs of the pipeline: each is a function of DataFrames that gives a DataFrame, nothing is run here.

The logs have the columns of `ildm_bench.schema` and ``run``. Every job takes them through `tagged`, which
leaves out rows of topics that their manifest does not have; `sent` and `deliveries` count all the others, so
that what was left out can be told from the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from ildm_bench.analysis.histogram import bucket_column
from ildm_bench.manifest import Manifest

Since = Literal["sent", "intended"]

TOPICS = T.StructType(
    [
        T.StructField("run", T.StringType(), False),
        T.StructField("topic", T.ShortType(), False),
        T.StructField("index", T.IntegerType(), False),  # place of the run among those analysed
        T.StructField("throughput", T.BooleanType(), False),  # of t-clients, not l-clients
        T.StructField("began_ns", T.LongType(), False),
        T.StructField("begin_ns", T.LongType(), False),  # the window: from here
        T.StructField("end_ns", T.LongType(), False),  # up to here, not included
    ]
)
CLIENTS = T.StructType(
    [T.StructField("index", T.IntegerType(), False), T.StructField("publisher", T.IntegerType(), False)]
)
PER_SECOND = T.StructType(
    [
        T.StructField("index", T.IntegerType()),
        T.StructField("second", T.LongType()),  # since the load began
        T.StructField("messages", T.LongType()),
        T.StructField("in_window", T.LongType()),  # how many of them
    ]
)
SENT = T.StructType(
    [
        T.StructField("index", T.IntegerType()),
        T.StructField("topic", T.ShortType()),
        T.StructField("messages", T.LongType()),
        T.StructField("in_window", T.LongType()),
    ]
)
LATENCIES = T.StructType(
    [
        T.StructField("index", T.IntegerType()),
        T.StructField("throughput", T.BooleanType()),
        T.StructField("since", T.StringType()),
        T.StructField("bucket", T.LongType()),  # see ildm_bench.analysis.histogram
        T.StructField("messages", T.LongType()),
        T.StructField("sum_ns", T.LongType()),
        T.StructField("max_ns", T.LongType()),
        T.StructField("negative", T.LongType()),  # clamped to 0: received before they were sent
    ]
)
DELIVERIES = T.StructType(
    [
        T.StructField("index", T.IntegerType()),
        T.StructField("topic", T.ShortType()),
        T.StructField("subscriber", T.IntegerType()),
        T.StructField("messages", T.LongType()),  # PUBLISH packets
        T.StructField("distinct", T.LongType()),
        T.StructField("in_window", T.LongType()),  # distinct, sent within the window
    ]
)
COUNTS = T.StructType([T.StructField("index", T.IntegerType()), T.StructField("messages", T.LongType())])

SEQ_BITS = 6
"""Sequence numbers are counted in blocks of 64, a bit each: exact, and small where few are lost."""


def topics(spark: SparkSession, manifests: Sequence[Manifest]) -> DataFrame:
    """What the jobs have to know of the runs, as TOPICS."""
    rows = [
        (
            manifest.run,
            number,
            index,
            topic.clients == "throughput",
            manifest.began_ns,
            manifest.window_begin_ns,
            manifest.window_end_ns,
        )
        for index, manifest in enumerate(manifests)
        for number, topic in enumerate(manifest.scenario.topics)
    ]
    return F.broadcast(local(spark, rows, TOPICS))


def local(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: T.StructType) -> DataFrame:
    """A few rows as a DataFrame that costs no job to read: Arrow tables stay with the plan, lists do not."""
    columns = [[row[place] for row in rows] for place in range(len(schema))]
    arrow = [
        pa.array(column, to_arrow_type(field.dataType))
        for column, field in zip(columns, schema.fields, strict=True)
    ]
    return spark.createDataFrame(pa.Table.from_arrays(arrow, names=schema.names), schema)


def tagged(log: DataFrame, known: DataFrame) -> DataFrame:
    """The log with the columns of TOPICS."""
    return log.join(known, ["run", "topic"])


def per_second(log: DataFrame, known: DataFrame, time: Literal["sent_ns", "received_ns"]) -> DataFrame:
    """Messages of t-clients by second: ingress from the send log, egress from the receive log; PER_SECOND."""
    second = F.floor((F.col(time) - F.col("began_ns")) / F.lit(1_000_000_000)).alias("second")
    counted = (
        tagged(log, known)
        .where("throughput")
        .groupBy("index", second)
        .agg(F.count("*").alias("messages"), F.sum(_within(time).cast("long")).alias("in_window"))
    )
    return counted.to(PER_SECOND)


def sent(sends: DataFrame, known: DataFrame) -> DataFrame:
    """Messages by topic, in the whole run and within the window; SENT."""
    counted = (
        tagged(sends, known)
        .groupBy("index", "topic")
        .agg(F.count("*").alias("messages"), F.sum(_within("sent_ns").cast("long")).alias("in_window"))
    )
    return counted.to(SENT)


def latencies(receives: DataFrame, known: DataFrame) -> DataFrame:
    """Histograms of the latency of what was received within the window; LATENCIES."""
    received = tagged(receives, known).where(_within("received_ns"))
    return _latencies(received, "sent").unionByName(_latencies(received, "intended"))


def _latencies(received: DataFrame, since: Since) -> DataFrame:
    raw = F.col("received_ns") - F.col(f"{since}_ns")
    counted = (
        received.select("index", "throughput", raw.alias("raw"))
        .withColumn("latency", F.greatest("raw", F.lit(0)))
        .groupBy("index", "throughput", bucket_column(F.col("latency")).alias("bucket"))
        .agg(
            F.count("*").alias("messages"),
            F.sum("latency").alias("sum_ns"),
            F.max("latency").alias("max_ns"),
            F.sum((F.col("raw") < 0).cast("long")).alias("negative"),
        )
    )
    return counted.withColumn("since", F.lit(since)).to(LATENCIES)


def deliveries(receives: DataFrame, known: DataFrame, without: DataFrame) -> DataFrame:
    """What each subscriber got of each topic in the whole run; DELIVERIES.

    ``without`` (CLIENTS): publishers whose send log is not there. Their messages do not count in
    ``in_window``, as they do not in `sent`.
    """
    bit = F.call_function("shiftleft", F.lit(1).cast("long"), (F.col("seq").bitwiseAND(63)).cast("int"))
    counted = without.select("index", "publisher", F.lit(False).alias("counts"))
    blocks = (
        tagged(receives, known)
        .groupBy("index", "topic", "publisher", "subscriber", F.shiftright("seq", SEQ_BITS).alias("block"))
        .agg(
            F.count("*").alias("messages"),
            F.bit_or(bit).alias("seen"),
            F.bit_or(F.when(_within("sent_ns"), bit).otherwise(F.lit(0).cast("long"))).alias("wanted"),
        )
        .join(F.broadcast(counted), ["index", "publisher"], "left")
    )
    wanted = F.when(F.col("counts").isNull(), F.bit_count("wanted")).otherwise(0)
    summed = blocks.groupBy("index", "topic", "subscriber").agg(
        F.sum("messages").alias("messages"),
        F.sum(F.bit_count("seen").cast("long")).alias("distinct"),
        F.sum(wanted.cast("long")).alias("in_window"),
    )
    return summed.to(DELIVERIES)


def order_violations(receives: DataFrame, known: DataFrame, partitions: int = 8) -> DataFrame:
    """PUBLISH packets that arrived after one of the same publisher with a higher seq; COUNTS.

    By ``arrival`` rather than by time: packets of one chunk share ``received_ns``. A late duplicate counts.
    """
    # One number for both clients: the fewer columns are sorted by, the less is written and compared.
    pair = F.shiftleft(F.col("publisher").cast("long"), 32).bitwiseOR(F.col("subscriber").cast("long"))
    rows = tagged(receives, known).select(pair.alias("pair"), "index", "arrival", "seq")
    earlier = (
        Window.partitionBy("pair", "index").orderBy("arrival").rowsBetween(Window.unboundedPreceding, -1)
    )
    counted = (
        rows.repartition(partitions, "pair", "index")
        .withColumn("highest", F.max("seq").over(earlier))
        .where("seq < highest")
        .groupBy("index")
        .agg(F.count("*").alias("messages"))
    )
    return counted.to(COUNTS)


def _within(time: str) -> Column:
    return (F.col(time) >= F.col("begin_ns")) & (F.col(time) < F.col("end_ns"))
