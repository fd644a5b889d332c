"""Rendezvous hashing: publishers and subscribers of a topic meet at a node on which all agree.

Every topic, by its first ``levels`` levels, has a home among the nodes: that of the highest random weight.
A publisher's node sends to the home, which sends to the nodes of the subscribers, who have registered
there. All nodes know all nodes (:mod:`gossip`), so they agree on homes however they were introduced; who
dies is found out by those who call it, within an interval or two, and its topics get other homes.

A filter with a wildcard in those levels, such as ``#``, is *wide*: it may match topics of any home. It
stands in the table of members, which every node has, so all homes know it. Take no more levels than spread
the topics well.

Promised: a message comes to a site at most once, also while homes change; and the messages of one publisher
in order, while their home stays. Not promised: that a message comes. What is under way to or at a node that
dies is lost at any QoS, which only says how brokers deliver; so is what comes to a new home before the
subscribers have registered there, some tenths of a second after they hear of it. What the home has no room
for is lost and counted (``not_sent``). A node needs an address that all others can dial.

Retained messages stay with their home and with whoever got them. Each of those tells a new home, and a home
tells whoever registers; one is lost only together with all that have it.
"""
