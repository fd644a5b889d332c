"""The jobs of the pipeline: each is a function of DataFrames that gives a DataFrame, nothing is run here.

The logs have the columns of `ildm_bench.measure.schema` and those that `tagged` or `tagged_run` adds to them,
which leave out rows of topics that their manifest does not have; `sent` and `deliveries` count all others,
so that what was left out can be told from the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from ildm_bench.analysis.histogram import bucket_column
from ildm_bench.measure.manifest import Manifest

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
SENT = T.StructType(
    [
        T.StructField("index", T.IntegerType()),
        T.StructField("topic", T.ShortType()),
        T.StructField("throughput", T.BooleanType()),
        T.StructField("second", T.LongType()),  # since the load began
        T.StructField("messages", T.LongType()),
        T.StructField("in_window", T.LongType()),  # how many of them
    ]
)
SECOND, SENT_NS, INTENDED_NS = range(3)
"""What a row of RECEIVED is about: messages received in a second, latency since sent, since intended."""
RECEIVED = T.StructType(
    [
        T.StructField("index", T.IntegerType()),
        T.StructField("throughput", T.BooleanType()),
        T.StructField("about", T.IntegerType()),
        T.StructField("place", T.LongType()),  # the second, or the bucket (ildm_bench.analysis.histogram)
        T.StructField("messages", T.LongType()),
        T.StructField("sum_ns", T.LongType()),
        T.StructField("max_ns", T.LongType()),
        # Of a second: received within the window. Of a bucket: negative, received before they were sent, and
        # clamped to 0.
        T.StructField("marked", T.LongType()),
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
    """The logs of any number of runs with the columns of TOPICS."""
    return log.join(known, ["run", "topic"])


def tagged_run(log: DataFrame, index: int, manifest: Manifest) -> DataFrame:
    """The same for the log of one run, by constants: without a look at a table for each row."""
    topics = manifest.scenario.topics
    of_t_clients = [number for number, topic in enumerate(topics) if topic.clients == "throughput"]
    times = {
        "began_ns": manifest.began_ns,
        "begin_ns": manifest.window_begin_ns,
        "end_ns": manifest.window_end_ns,
    }
    return log.where(F.col("topic").between(0, len(topics) - 1)).select(
        "*",
        F.lit(index).cast("int").alias("index"),
        (F.col("topic").isin(of_t_clients) if of_t_clients else F.lit(False)).alias("throughput"),
        *(F.lit(time).cast("long").alias(name) for name, time in times.items()),
    )


def sent(sends: DataFrame) -> DataFrame:
    """Messages by topic and second; SENT."""
    counted = sends.groupBy("index", "topic", "throughput", _second("sent_ns")).agg(
        F.count("*").alias("messages"), F.sum(_within("sent_ns").cast("long")).alias("in_window")
    )
    return counted.to(SENT)


def received(receives: DataFrame) -> DataFrame:
    """Messages by second, and histograms of the latency of what was received within the window; RECEIVED.

    Each row counts three times, so that the logs are read once.
    """
    no_latency = F.lit(0).cast("long")
    counted = (
        # First what is stacked: there no result of a part of an expression would be used again.
        receives.select(
            "index",
            "throughput",
            _second("received_ns"),
            _within("received_ns").alias("within"),
            *_latency("sent"),
            *_latency("intended"),
        )
        .select(
            "index",
            "throughput",
            "within",
            F.stack(
                F.lit(3),
                *(F.lit(SECOND), F.col("second"), no_latency, F.col("within")),
                *(F.lit(SENT_NS), F.col("bucket_sent"), F.col("sent"), F.col("early_sent")),
                *(F.lit(INTENDED_NS), F.col("bucket_intended"), F.col("intended"), F.col("early_intended")),
            ).alias("about", "place", "latency", "marked"),
        )
        .where(F.col("within") | (F.col("about") == SECOND))
        .groupBy("index", "throughput", "about", "place")
        .agg(
            F.count("*").alias("messages"),
            F.sum("latency").alias("sum_ns"),
            F.max("latency").alias("max_ns"),
            F.sum(F.col("marked").cast("long")).alias("marked"),
        )
    )
    return counted.to(RECEIVED)


def _latency(name: str) -> tuple[Column, Column, Column]:
    raw = F.col("received_ns") - F.col(f"{name}_ns")
    latency = F.greatest(raw, F.lit(0))
    bucket = bucket_column(latency)
    return bucket.alias(f"bucket_{name}"), latency.alias(name), (raw < 0).alias(f"early_{name}")


def deliveries(receives: DataFrame, without: DataFrame) -> DataFrame:
    """What each subscriber got of each topic in the whole run; DELIVERIES.

    ``without`` (CLIENTS): publishers whose send log is not there. Their messages do not count in
    ``in_window``, as they do not in `sent`.
    """
    bit = F.call_function("shiftleft", F.lit(1).cast("long"), (F.col("seq").bitwiseAND(63)).cast("int"))
    counted = without.select("index", "publisher", F.lit(False).alias("counts"))
    blocks = (
        receives.groupBy(
            "index", "topic", "publisher", "subscriber", F.shiftright("seq", SEQ_BITS).alias("block")
        )
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


def order_violations(receives: DataFrame, runs: int, partitions: int = 8) -> DataFrame:
    """PUBLISH packets that arrived after one of the same publisher with a higher seq; COUNTS.

    By ``arrival`` rather than by time: packets of one chunk share ``received_ns``. A late duplicate counts.
    ``runs``: how many there are in the log.
    """
    # One number for both clients: the fewer columns are sorted by, the less is written and compared.
    pair = F.shiftleft(F.col("publisher").cast("long"), 32).bitwiseOR(F.col("subscriber").cast("long"))
    rows = receives.select(pair.alias("pair"), "index", "arrival", "seq")
    apart = ["pair"] if runs == 1 else ["pair", "index"]
    earlier = Window.partitionBy(*apart).orderBy("arrival").rowsBetween(Window.unboundedPreceding, -1)
    counted = (
        rows.repartition(partitions, *apart)
        .withColumn("highest", F.max("seq").over(earlier))
        .where("seq < highest")
        .groupBy("index")
        .agg(F.count("*").alias("messages"))
    )
    return counted.to(COUNTS)


def _second(time: str) -> Column:
    return F.floor((F.col(time) - F.col("began_ns")) / F.lit(1_000_000_000)).alias("second")


def _within(time: str) -> Column:
    return (F.col(time) >= F.col("begin_ns")) & (F.col(time) < F.col("end_ns"))
