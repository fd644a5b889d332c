"""Small benchmarks of single parts; each is a program that prints JSON or a table.

===============================================  ==========================================================
``python -m ildm_bench.micro.frames``            framing and header scanning of 32-byte PUBLISH
``python -m ildm_bench.micro.routing``           routing decisions over 10 to 100,000 filters, cached and not
``python -m ildm_bench.micro.memory``            memory per idle client of a real node before Mosquitto
``python -m ildm_bench.micro.relay``             relay throughput and CPU against direct and HAProxy
``python -m ildm_bench.micro.innocents``         round trips of one client while a hundred others flood
``python -m ildm_bench.micro.link``              one link between brokers that only count
``python -m ildm_bench.micro.qualities``         each QoS over a link, with and without properties
``... relay --traffic KIND``, ``... link --traffic`` kinds of traffic at fixed rates and flat out, latencies
``python -m ildm_bench.micro.link_bytes``        bytes between two sites: compressed or not, and a bridge
``python -m ildm_bench.micro.link_features``     a link's features unset and set, beside the last release
``python -m ildm_bench.micro.link_rates``        links with a rate over bad networks: the rate kept, and bytes
``python -m ildm_bench.micro.link_backlog``      alarms beside an hour's backlog: how old they are
``python -m ildm_bench.micro.takeover``          a pair whose owner ends: until clients and links work
``python -m ildm_bench.micro.upgrade``           a node handed to a new process: how long none serves
``python -m ildm_bench.micro.processes``         several nodes on one port before one broker
``python -m ildm_bench.micro.owner``             clients in several processes, links in one
``python -m ildm_bench.micro.keys``              many keys of one node: to enter, to keep, to take out
``python -m ildm_bench.micro.overlay``           building tables and range queries over 10^5 and 10^6 keys
``python -m ildm_bench.micro.overlay_subscribe`` thousands of filters at once: what other clients notice
``python -m ildm_bench.micro.overlay_recovery``  a node of an overlay killed: losses, time to repair
``python -m ildm_bench.micro.overlay_return``    a site of an overlay that is back: until it gets all again
``python -m ildm_bench.micro.overlay_topics``    many topics of one site of an overlay: messages, CPU, memory
``python -m ildm_bench.micro.overlay_publish``   what a message costs at each node that it reaches
``python -m ildm_bench.micro.overlay_retained``  retained messages by the thousand: the longest callback
``python -m ildm_bench.micro.generator``         the load generator: CPU of a delivery, beside Mosquitto's own
``python -m ildm_bench.micro.spool``             the spool: CPU and time of a message, opening, beside SQLite
===============================================  ==========================================================
"""
