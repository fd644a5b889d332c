"""Small benchmarks of single parts; each is a program that prints JSON or a table.

==========================================  ================================================================
``python -m bench.micro.frames``            framing and header scanning of 32-byte PUBLISH
``python -m bench.micro.routing``           routing decisions over 10 to 100,000 filters, cached and not
``python -m bench.micro.memory``            memory per idle client of a real node before Mosquitto
``python -m bench.micro.relay``             relay throughput and CPU against direct and HAProxy
``python -m bench.micro.link``              one link between brokers that only count
``python -m bench.micro.keys``              many keys of one node: to enter, to keep, to take out
``python -m bench.micro.overlay``           building tables and range queries over 10^5 and 10^6 keys
``python -m bench.micro.overlay_subscribe`` thousands of filters at once: what other clients notice
``python -m bench.micro.overlay_recovery``  a node of an overlay killed in traffic: losses, time to repair
``python -m bench.micro.overlay_topics``    many topics of one site of an overlay: messages, CPU, memory
``python -m bench.micro.overlay_publish``   what a message costs at its publisher and at each node it reaches
``python -m bench.micro.overlay_retained``  retained messages by the thousand: the longest callback
``python -m bench.micro.spool``             the spool: CPU and time of a message, opening, beside SQLite
==========================================  ================================================================
"""
