"""What must hold in every history, each said once, in SQL that Spark and DuckDB both understand.

Tables that are there before: ``events`` and ``runs`` (`ildm_bench.chaos.tables`), and ``matches`` (filter,
topic): which topics in the history match which of its filters. `STEPS` are made of them, in order, then
`INVARIANTS`, whose rows are what was found against them, all with the columns `FINDING`.

A message is *owed* to a session that has subscribed to its topic when the message is handed over, once the
subscription is known at all sites: after the first stretch of ``runs.settle`` seconds without any fault that
begins at or after its SUBACK. The session must not unsubscribe, and must be connected when the history ends.
Owed at QoS 0 is not promised; how much of it came is only counted.
"""

from __future__ import annotations

FINDING = ("run", "cause", "site", "session", "publisher", "seq", "topic", "t")
"""``cause``: `OURS`, or why it does not count against the nodes."""

OURS = "ours"
CAUSES = {
    OURS: "against what is promised",
    "store": "the broker had it, or had the session, and lost it when it was killed",
    "unclear": "the broker there was killed after it was published and may lose what it has acknowledged; "
    "nobody at the site has seen the message",
    "disk": "what the node had written was torn off or altered, or its machine lost power in a mode that "
    "does not promise to survive that",
    "tree": "while the links that are used for messages changed: the stated exception of order",
    "down": "over an overlay, while something was down between publication and receipt, or shortly before: "
    "likewise",
    "again": "of QoS 1, sent first before the session had subscribed, and once more by its client, or by the "
    "node there, which was killed: what of the first round is still under way comes before it",
    "resent": "of QoS 2, at a broker that takes for new what is sent again without having been released: its "
    "client there sent it again, or the node, which says so; or that broker gave it once more, with DUP",
    "backlog": "of what waited at the broker for a session that was away, from a make that gives that out "
    "topic by topic: of its own topic it came in order",
    "replay": "a retained message older than the subscription, from a make that clears the flag of those it "
    "gives to new subscribers: whether it was given so, or live, cannot be told",
    "retry": "what was under way when its session's connection ended, with DUP, from a make that sends that "
    "again only seconds after the session is back, behind what has waited",
    "repaired": "a retained message that a broker had and lost when it was killed, or that was replaced "
    "there by one of which its node does not know, or an older one of a client there: that gives it again, "
    "to all who have subscribed by then",
    "met": "a retained message that was under way when nodes met, or a session of theirs alone was held up, "
    "and they told each other the newest first",
    "quality": "published at more QoS than wanted, as others came or went on its way, whose QoS counts too: "
    "what crosses at less waits for nothing that crosses at more",
    "unknown": "its broker has taken a retained message that was never acknowledged, its node was killed "
    "before it knew, and the client did not send it again",
    "probe": "what a node says to itself on a topic with $, which that broker gives to subscribers of #",
    "first": "over an overlay, older than the first of its publisher and topic that came to the site: that "
    "waits for none",
    "early": "over an overlay, published before all sites knew of the subscription: what is fetched then "
    "comes later than what comes directly",
}

KILLS = "(topic LIKE 'kill%' AND session LIKE 'broker/%')"
"""Faults after which a broker knows only what its store has."""

KEEPS_UNRELEASED = "activemq"
"""The make of broker that keeps in a crash what it has answered with PUBREC alone."""
TAKES_AGAIN = "activemq"
"""The make that delivers a message of QoS 2 once more which comes again before its PUBREL (MQTT-4.3.3-10)."""
TAKES_AT_ONCE = ("rabbitmq", "activemq", "moquette", "amqtt")
"""The makes with which a message of QoS 2 takes effect when it comes, not when it is released."""
FORGETS_RETAINED = ("rabbitmq", "activemq", "moquette", "amqtt", "-default")
"""The makes, and settings, that keep no retained messages in a crash."""
BY_WISHES = "sf"
"""The algorithm that sends a message with the QoS that is wanted of its topic."""
GIVES_BY_TOPIC = "activemq"
"""The make from which what has waited for a session comes topic by topic."""
HIDES_REPLAY = "moquette"
"""The make from which what a topic retains comes with the flag cleared, against MQTT-3.3.1-8."""
RETRIES_LATE = "moquette"
"""The make that sends again what was under way 5 s after its session is back; what has waited goes first,
against MQTT-4.6.0-1."""
PROBE = "$ildm/probe/"
"""How topics begin on which nodes try their brokers (`ildm.core.broker.delivery`)."""
SHOW_DOLLAR = ("rabbitmq", "moquette")
"""The makes that give topics with ``$`` to subscribers of ``#``, against MQTT-4.7.2-1."""
NODE_KILLS = "(topic LIKE 'kill%' AND session LIKE 'node/%')"


def of_makes(runs: str, makes: tuple[str, ...]) -> str:
    """A condition: there are brokers of these makes in a run of the table."""
    return "(" + " OR ".join(f"{runs}.broker LIKE '%{make}%'" for make in makes) + ")"


READ = 2.0
"""Seconds within which what a counter of a live node says is read."""
OVERLAY = "r.algorithm IN ('sg_tbps', 'atm_tbps', 'stla', 'octopia')"
CHANGE = 6.0
"""Seconds after a site of an overlay has begun to use other links, or after a fault, in which casts may still
miss it, as long as others are given to hear of a subscription. What it missed is sent again, and late."""

ADMITTING = (
    "%dropped%",
    "%expired",
    "%_refused",
    "%_forgotten",
    "refused_by_broker",
    "undecided",
    "spool_damaged",
    "spool_unreadable",
    "wills_not_saved",
    "subscriptions_over_limit",
)
"""Counters of a node (patterns of LIKE) by which it says that it has not passed on what it was given."""

STEPS: dict[str, str] = {
    # Wills are published when they are due.
    "published": """
        SELECT run, publisher, seq, MAX(op) AS op, MAX(site) AS site, MAX(topic) AS topic, MAX(qos) AS qos,
               MAX(value) AS value, MAX(CASE WHEN retain THEN 1 ELSE 0 END) AS retain,
               MIN(CASE WHEN phase = 'invoke' AND op = 'publish' OR phase = 'ok' AND op = 'will'
                        THEN t END) AS t,
               MIN(CASE WHEN phase = 'ok' THEN t END) AS acknowledged,
               MAX(CASE WHEN phase = 'fail' THEN 1 ELSE 0 END) AS refused
        FROM events WHERE op IN ('publish', 'will')
        GROUP BY run, publisher, seq""",
    "receipts": """
        SELECT run, session, publisher, seq, MIN(n) AS n, MIN(t) AS t, MAX(site) AS site, MAX(qos) AS qos,
               MIN(incarnation) AS incarnation,
               MIN(topic) AS topic, MAX(topic) AS last_topic, MIN(value) AS value, MAX(value) AS last_value,
               MIN(CASE WHEN retain THEN 1 ELSE 0 END) AS retain,
               MIN_BY(CASE WHEN retain THEN 1 ELSE 0 END, n) AS replayed,
               MIN_BY(CASE WHEN dup THEN 1 ELSE 0 END, n) AS dup, COUNT(*) AS messages
        FROM events WHERE op = 'receive' AND phase = 'ok' AND (publisher <> '' OR value <> '')
        GROUP BY run, session, publisher, seq""",
    "sessions": """
        SELECT run, session, site, connected,
               CASE WHEN kind <> 'clean' AND LEAD(kind) OVER following = 'resume' THEN 1 ELSE 0 END AS lost
        FROM (SELECT run, process, session, MAX(site) AS site, MIN(n) AS n, MIN_BY(value, n) AS kind,
                     CASE WHEN MAX_BY(phase, n) = 'ok' THEN 1 ELSE 0 END AS connected
              FROM events WHERE op = 'connect' AND session <> '' GROUP BY run, process, session) AS lives
        WINDOW following AS (PARTITION BY run, process ORDER BY n)""",
    "disturbances": """
        SELECT f.run, f.topic AS kind, f.session AS target, f.t AS begins, COALESCE(MIN(h.t), 1e300) AS ends
        FROM events f
        LEFT JOIN events h ON h.run = f.run AND h.op = 'heal' AND h.value = f.value AND h.t >= f.t
        WHERE f.op = 'fault'
        GROUP BY f.run, f.value, f.topic, f.session, f.t""",
    "asked": """
        SELECT run, session, filter, MIN(t) AS t, MIN(qos) AS qos
        FROM (SELECT s.run, s.session, s.topic AS filter, s.t, s.qos, MIN(u.t) AS gone
              FROM (SELECT k.run, k.session, k.topic, k.t, k.qos, COALESCE(MAX(i.t), k.t) AS begun
                    FROM events k
                    LEFT JOIN events i ON i.run = k.run AND i.session = k.session AND i.topic = k.topic
                         AND i.op = 'subscribe' AND i.phase = 'invoke' AND i.t <= k.t
                    WHERE k.op = 'subscribe' AND k.phase = 'ok'
                    GROUP BY k.run, k.session, k.topic, k.t, k.qos) AS s
              LEFT JOIN events u ON u.run = s.run AND u.session = s.session AND u.topic = s.topic
                   AND u.op = 'unsubscribe' AND u.phase = 'invoke' AND (u.t >= s.t OR u.t > s.begun)
              GROUP BY s.run, s.session, s.topic, s.t, s.qos) AS terms
        WHERE gone IS NULL
        GROUP BY run, session, filter""",
    "subscriptions": """
        SELECT c.run, c.session, c.filter, c.qos, MIN(c.calm) + MIN(c.settle) AS entitled
        FROM (SELECT a.run, a.session, a.filter, a.qos, a.t AS calm, r.settle
              FROM asked a JOIN runs r ON r.run = a.run
              UNION ALL
              SELECT a.run, a.session, a.filter, a.qos, d.ends AS calm, r.settle
              FROM asked a JOIN runs r ON r.run = a.run
              JOIN disturbances d ON d.run = a.run AND d.ends > a.t AND d.ends < 1e300) AS c
        WHERE NOT EXISTS (SELECT 1 FROM disturbances d
                          WHERE d.run = c.run AND d.begins < c.calm + c.settle AND d.ends > c.calm)
        GROUP BY c.run, c.session, c.filter, c.qos""",
    "owed": """
        SELECT p.run, w.session, s.site, p.publisher, p.seq, p.topic, p.t, s.lost, LEAST(p.qos, w.qos) AS qos
        FROM published p
        JOIN matches m ON m.topic = p.topic
        JOIN subscriptions w ON w.run = p.run AND w.filter = m.filter AND p.t > w.entitled
        JOIN sessions s ON s.run = w.run AND s.session = w.session AND (s.connected = 1 OR s.lost = 1)
        WHERE p.value <> '' AND (p.acknowledged IS NOT NULL OR p.qos = 0)
              AND w.session NOT LIKE 'witness.%'""",
    "missing": """
        SELECT o.* FROM owed o
        WHERE NOT EXISTS (SELECT 1 FROM receipts r WHERE r.run = o.run AND r.session = o.session
                          AND r.publisher = o.publisher AND r.seq = o.seq)""",
    # What the broker of a site has had: another session there got it in the life that the kill ended. By time
    # it cannot be told: what the broker has sent may be read after the kill.
    "excused": f"""
        SELECT m.run, m.session, m.publisher, m.seq,
               MAX(CASE WHEN r.incarnation <= d.incarnation THEN 1 ELSE 0 END) AS seen,
               MAX(CASE WHEN runs.store = 'lossy' THEN 1 ELSE 0 END) AS lossy
        FROM missing m
        JOIN runs ON runs.run = m.run
        JOIN (SELECT run, session, t, incarnation FROM events WHERE op = 'fault' AND {KILLS}) d
             ON d.run = m.run AND d.session = 'broker/' || m.site AND d.t >= m.t
        LEFT JOIN receipts r ON r.run = m.run AND r.site = m.site AND r.publisher = m.publisher
             AND r.seq = m.seq
        WHERE m.qos > 0
        GROUP BY m.run, m.session, m.publisher, m.seq""",
    "damaged": """
        SELECT d.run, MIN(d.begins) AS t, MAX(d.begins) AS last
        FROM disturbances d JOIN runs r ON r.run = d.run
        WHERE d.kind IN ('tear', 'flip') OR d.kind = 'power' AND r.mode <> 'power'
        GROUP BY d.run""",
    # Its broker was killed when it had answered PUBREC and not PUBCOMP, of a make that forgets it then.
    "unreleased": f"""
        SELECT DISTINCT p.run, p.publisher, p.seq, p.site
        FROM published p
        JOIN runs r ON r.run = p.run AND r.broker NOT LIKE '%{KEEPS_UNRELEASED}%'
        JOIN (SELECT run, publisher, seq, MIN(t) AS t FROM events
              WHERE op = 'publish' AND phase = 'info' AND detail LIKE '%PUBREC%'
              GROUP BY run, publisher, seq) c ON c.run = p.run AND c.publisher = p.publisher AND c.seq = p.seq
        JOIN (SELECT run, session, t FROM events WHERE op = 'fault' AND {KILLS}) d
             ON d.run = p.run AND d.session = 'broker/' || p.site AND d.t BETWEEN c.t AND p.acknowledged""",
    # Wills that a broker was to give to its own site, and was killed before they were due.
    "unwilled": f"""
        SELECT DISTINCT p.run, p.publisher, p.seq, p.site
        FROM published p
        JOIN (SELECT run, publisher, seq, MIN(t) AS t FROM events WHERE op = 'will' AND phase = 'invoke'
              GROUP BY run, publisher, seq) c ON c.run = p.run AND c.publisher = p.publisher AND c.seq = p.seq
        LEFT JOIN disturbances w ON w.run = p.run AND w.kind IN ('power', 'pause')
             AND w.target IN ('node/' || p.site, 'broker/' || p.site) AND p.t BETWEEN w.begins AND w.ends
        JOIN (SELECT run, session, t FROM events WHERE op = 'fault' AND {KILLS}) d
             ON d.run = p.run AND d.session = 'broker/' || p.site
             AND d.t BETWEEN c.t AND COALESCE(w.ends, p.t)
        WHERE p.op = 'will'""",
    # A broker that was killed has given a new message of QoS 2 an identifier that it had not told its client
    # to release: the client has to take it for the one before (MQTT-4.3.3-10).
    "mistaken": f"""
        SELECT DISTINCT e.run, e.session, e.publisher, e.seq
        FROM events e
        JOIN (SELECT run, session, t FROM events WHERE op = 'fault' AND {KILLS}) d
             ON d.run = e.run AND d.session = 'broker/' || e.site AND d.t <= e.t
        WHERE e.op = 'receive' AND e.phase = 'info'""",
    # Of QoS 1, sent again by its client, or by the node of another site that was killed, and first before a
    # session had subscribed.
    "repeated": """
        SELECT DISTINCT s.run, s.session, p.publisher, p.seq, i.t, s.t AS begins
        FROM published p
        JOIN (SELECT run, publisher, seq, t, '' AS node FROM events
              WHERE op = 'publish' AND phase = 'info' AND qos = 1 AND detail = ''
              UNION
              SELECT p.run, p.publisher, p.seq, d.ends, d.target
              FROM published p
              JOIN disturbances d ON d.run = p.run AND d.begins >= p.t
                   AND d.kind LIKE 'kill%' AND d.target LIKE 'node/%'
              WHERE p.qos = 1) i
             ON i.run = p.run AND i.publisher = p.publisher AND i.seq = p.seq
        JOIN matches m ON m.topic = p.topic
        JOIN (SELECT run, session, topic, site, MIN(t) AS t FROM events
              WHERE op = 'subscribe' AND phase = 'ok' GROUP BY run, session, topic, site) s
             ON s.run = p.run AND s.topic = m.filter AND p.t < s.t AND i.t > p.t
             AND (i.node = '' OR i.node = 'node/' || s.site AND p.site <> s.site)""",
    # Retained, handed over before a session's SUBSCRIBE: what comes of it after that may be what the broker
    # has retained, where a make gives that without the flag.
    "replayable": f"""
        SELECT s.run, s.session, p.publisher, p.seq, s.t
        FROM events s
        JOIN runs r ON r.run = s.run AND r.broker LIKE '%{HIDES_REPLAY}%'
        JOIN matches m ON m.filter = s.topic
        JOIN published p ON p.run = s.run AND p.topic = m.topic AND p.retain = 1 AND p.t <= s.t
        WHERE s.op = 'subscribe' AND s.phase = 'invoke'""",
    # Of QoS 2, sent again by a client of a broker that takes it for new.
    "resent": f"""
        SELECT e.run, e.publisher, e.seq, e.site, e.t FROM events e
        JOIN runs r ON r.run = e.run AND r.broker LIKE '%{TAKES_AGAIN}%'
        WHERE e.op = 'publish' AND e.phase = 'info' AND e.qos = 2 AND e.dup""",
    # Of QoS 2, sent again by a node to such a broker, whose session of it was gone, by its own counter.
    "uncertain": f"""
        SELECT e.run, e.process, e.t FROM events e
        JOIN runs r ON r.run = e.run AND r.broker LIKE '%{TAKES_AGAIN}%'
        WHERE e.op = 'counters' AND e.phase = 'ok' AND e.seq > 0
              AND e.topic = 'injection_uncertain_resent'""",
    # By its own counter: a node has let QoS 2 go on that its failing disk did not keep.
    "unguarded": """
        SELECT run, process, topic, t FROM events
        WHERE op = 'counters' AND phase = 'ok' AND topic IN ('injection_unguarded', 'link_unguarded')
              AND seq > 0""",
    # Retained, never acknowledged, and not sent again after its node was killed. Some take QoS 2 at once.
    "unknown": f"""
        SELECT DISTINCT p.run, p.topic, p.site, p.value, p.t
        FROM published p
        JOIN runs r ON r.run = p.run
        JOIN (SELECT run, session, t FROM events WHERE op = 'fault' AND {NODE_KILLS}) d
             ON d.run = p.run AND d.session = 'node/' || p.site AND d.t >= p.t
        LEFT JOIN (SELECT run, publisher, seq, t, qos FROM events WHERE op = 'publish' AND phase = 'info'
                   AND (qos = 1 OR detail LIKE '%PUBREC%')) c
             ON c.run = p.run AND c.publisher = p.publisher AND c.seq = p.seq AND (c.qos = 2 OR c.t >= d.t)
        WHERE p.retain = 1 AND p.acknowledged IS NULL AND c.seq IS NULL
              AND (p.qos = 1 OR p.qos = 2 AND {of_makes("r", TAKES_AT_ONCE)})""",
    # What a broker retained and lost, by session and when that was killed; or had replaced by what its node
    # does not know, or by an older one of a client at its site.
    "repaired": f"""
        SELECT DISTINCT p.run, p.publisher, p.seq, d.session AS broker, d.t
        FROM published p
        JOIN runs r ON r.run = p.run AND {of_makes("r", FORGETS_RETAINED)}
        JOIN (SELECT run, session, t FROM events WHERE op = 'fault' AND {KILLS}) d
             ON d.run = p.run AND d.t >= p.t
        WHERE p.retain = 1
        UNION
        SELECT DISTINCT p.run, p.publisher, p.seq, 'broker/' || u.site, u.t
        FROM published p
        JOIN unknown u ON u.run = p.run AND u.topic = p.topic AND u.t > p.t
        WHERE p.retain = 1
        UNION
        SELECT DISTINCT p.run, p.publisher, p.seq, 'broker/' || o.site, p.t
        FROM published p
        JOIN published o ON o.run = p.run AND o.topic = p.topic AND o.retain = 1 AND o.site <> p.site
             AND o.t <= p.t AND o.acknowledged >= p.t
        WHERE p.retain = 1""",
    "forgotten": """
        SELECT DISTINCT run, site, publisher, seq FROM events WHERE op = 'receive' AND phase = 'fail'""",
    "wanted": """
        SELECT DISTINCT s.run, s.session, m.topic FROM events s JOIN matches m ON m.filter = s.topic
        WHERE s.op = 'subscribe' AND s.phase = 'invoke'""",
    # A message crosses with the QoS that is wanted of its topic, and order is promised for each of these.
    "uniform": """
        SELECT run FROM events WHERE op = 'subscribe' AND phase = 'ok' AND session NOT LIKE 'witness.%'
        GROUP BY run HAVING COUNT(DISTINCT qos) = 1""",
    # In the order of arrival, by publisher, QoS and, where paths or that QoS differ by topic, topic. What
    # brokers retain and give first is left out.
    "arrivals": f"""
        SELECT r.run, r.session, r.site, r.publisher, r.seq, r.topic, r.t, r.dup, p.t AS since, p.retain,
               CASE WHEN runs.target = 'ildm' AND runs.algorithm = '{BY_WISHES}' AND u.run IS NULL
                    THEN p.qos - r.qos ELSE 0 END AS less,
               MAX(r.seq) OVER (PARTITION BY r.run, r.session, r.publisher, r.qos, p.qos, p.retain,
                   CASE WHEN runs.target = 'ildm' AND runs.algorithm IN ('pf', 'sf') AND u.run IS NOT NULL
                        THEN '' ELSE r.topic END
                   ORDER BY r.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest,
               MAX(r.seq) OVER (PARTITION BY r.run, r.session, r.publisher, r.qos, p.qos, p.retain, r.topic
                   ORDER BY r.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest_of_topic,
               FIRST_VALUE(r.seq) OVER (PARTITION BY r.run, r.site, r.publisher, r.topic
                   ORDER BY r.n ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS opening
        FROM receipts r
        JOIN published p ON p.run = r.run AND p.publisher = r.publisher AND p.seq = r.seq
             AND p.op = 'publish'
        JOIN runs ON runs.run = r.run
        LEFT JOIN uniform u ON u.run = r.run
        WHERE r.replayed = 0""",
    "places": """
        SELECT DISTINCT e.run, e.site FROM events e JOIN runs r ON r.run = e.run
        WHERE e.op = 'retained' AND e.phase = 'invoke' AND r.complete""",
    "kept": """
        SELECT t.run, t.topic, p.site, COALESCE(MAX(v.value), '') AS value
        FROM (SELECT DISTINCT run, topic FROM events WHERE op = 'retained' AND phase = 'ok'
              UNION
              SELECT DISTINCT run, topic FROM published WHERE retain = 1) AS t
        JOIN places p ON p.run = t.run
        LEFT JOIN (SELECT run, site, topic, value FROM events WHERE op = 'retained' AND phase = 'ok') v
             ON v.run = t.run AND v.topic = t.topic AND v.site = p.site
        GROUP BY t.run, t.topic, p.site""",
    # What a topic may hold is certain where one publisher alone has set it, at one QoS above 0.
    "newest": """
        SELECT run, topic, MAX(publisher) AS publisher,
               MAX(CASE WHEN acknowledged IS NOT NULL THEN seq END) AS seq
        FROM published WHERE retain = 1
        GROUP BY run, topic
        HAVING COUNT(DISTINCT publisher) = 1 AND COUNT(DISTINCT qos) = 1 AND MIN(qos) > 0
               AND MAX(op) = 'publish' AND MAX(acknowledged) IS NOT NULL""",
    "readings": """
        SELECT run, process, topic, incarnation, MAX(CASE WHEN phase = 'ok' THEN seq END) AS highest,
               MAX(CASE WHEN phase = 'ok' THEN t END) AS t
        FROM events WHERE op = 'counters' GROUP BY run, process, topic, incarnation""",
    "bounds": """
        SELECT run, process, topic, MIN(seq) AS bound FROM events
        WHERE op = 'counters' AND phase = 'info' GROUP BY run, process, topic""",
}

INVARIANTS: dict[str, str] = {
    "lost": """
        SELECT m.run,
               CASE WHEN m.lost = 1 OR f.seq IS NOT NULL OR x.seen = 1 OR u.seq IS NOT NULL
                         OR v.seq IS NOT NULL OR k.seq IS NOT NULL THEN 'store'
                    WHEN d.last >= m.t THEN 'disk'
                    WHEN x.lossy = 1 THEN 'unclear' ELSE 'ours' END AS cause,
               m.site, m.session, m.publisher, m.seq, m.topic, m.t
        FROM missing m
        LEFT JOIN excused x ON x.run = m.run AND x.session = m.session AND x.publisher = m.publisher
             AND x.seq = m.seq
        LEFT JOIN forgotten f ON f.run = m.run AND f.site = m.site AND f.publisher = m.publisher
             AND f.seq = m.seq
        LEFT JOIN unreleased u ON u.run = m.run AND u.site = m.site AND u.publisher = m.publisher
             AND u.seq = m.seq
        LEFT JOIN unwilled v ON v.run = m.run AND v.site = m.site AND v.publisher = m.publisher
             AND v.seq = m.seq
        LEFT JOIN mistaken k ON k.run = m.run AND k.session = m.session AND k.publisher = m.publisher
             AND k.seq = m.seq
        LEFT JOIN damaged d ON d.run = m.run
        WHERE m.qos > 0""",
    "twice": f"""
        SELECT x.run,
               CASE WHEN MAX(d.t) <= MAX(x.t) OR COUNT(g.t) > 0 THEN 'disk'
                    WHEN COUNT(DISTINCT a.t) + MAX(CASE WHEN o.run IS NULL THEN 0 ELSE x.redelivered END)
                         >= MAX(x.receipts) - 1 OR COUNT(u.t) > 0 THEN 'resent'
                    WHEN COUNT(e.t) > 0 THEN 'repaired'
                    ELSE 'ours' END AS cause,
               x.site, x.session, x.publisher, x.seq, MAX(x.topic) AS topic, MAX(x.t) AS t
        FROM (SELECT run, session, incarnation, publisher, seq, MAX(site) AS site, MAX(topic) AS topic,
                     MIN(t) AS begins, MAX(t) AS t, COUNT(*) AS receipts,
                     SUM(CASE WHEN dup THEN 1 ELSE 0 END) AS redelivered
              FROM events
              WHERE op = 'receive' AND phase = 'ok' AND qos = 2 AND NOT retain AND publisher <> ''
              GROUP BY run, session, incarnation, publisher, seq
              HAVING COUNT(*) > 1) x
        LEFT JOIN damaged d ON d.run = x.run
        LEFT JOIN published p ON p.run = x.run AND p.publisher = x.publisher AND p.seq = x.seq
        LEFT JOIN unguarded g ON g.run = x.run AND g.t BETWEEN COALESCE(p.t, x.begins) AND x.t
             AND (g.topic = 'injection_unguarded' AND g.process = 'node/' || x.site
                  OR g.topic = 'link_unguarded' AND g.process = 'node/' || p.site)
        LEFT JOIN runs o ON o.run = x.run AND o.broker LIKE '%{TAKES_AGAIN}%'
        LEFT JOIN events w ON w.run = x.run AND w.session = x.session AND w.op = 'connect' AND w.phase = 'ok'
             AND w.value = 'resume' AND w.t BETWEEN p.t AND x.begins
        LEFT JOIN resent a ON a.run = x.run AND a.publisher = x.publisher AND a.seq = x.seq
             AND a.site = x.site AND a.t <= x.t AND (a.t >= x.begins OR w.t IS NOT NULL)
        LEFT JOIN repaired e ON e.run = x.run AND e.publisher = x.publisher AND e.seq = x.seq
             AND e.broker = 'broker/' || x.site AND e.t <= x.t
        LEFT JOIN uncertain u ON u.run = x.run AND u.process = 'node/' || x.site
             AND u.t <= x.t + {READ} AND (u.t >= x.begins OR w.t IS NOT NULL AND u.t >= p.t)
        GROUP BY x.run, x.site, x.session, x.incarnation, x.publisher, x.seq""",
    "unexpected": f"""
        SELECT r.run, CASE WHEN r.publisher = '' AND r.topic LIKE '{PROBE}%' AND n.run IS NOT NULL
                           THEN 'probe' ELSE 'ours' END AS cause,
               r.site, r.session, r.publisher, r.seq, r.topic, r.t
        FROM receipts r
        LEFT JOIN runs n ON n.run = r.run
             AND ({" OR ".join(f"n.broker LIKE '%{make}%'" for make in SHOW_DOLLAR)})
        LEFT JOIN published p ON p.run = r.run AND p.publisher = r.publisher AND p.seq = r.seq
        LEFT JOIN wanted w ON w.run = r.run AND w.session = r.session AND w.topic = r.topic
        WHERE p.seq IS NULL OR r.topic <> p.topic OR r.last_topic <> p.topic
              OR r.value <> p.value OR r.last_value <> p.value
              OR (p.op = 'will' AND p.refused = 1 AND p.acknowledged IS NULL) OR w.topic IS NULL""",
    "order": f"""
        SELECT a.run,
               CASE WHEN COUNT(g.t) > 0 THEN 'again'
                    WHEN COUNT(e.t) > 0 THEN 'tree'
                    WHEN COUNT(b.begins) > 0 THEN 'down'
                    WHEN {OVERLAY} AND a.opening > a.seq THEN 'first'
                    WHEN COUNT(k.entitled) > 0 THEN 'early'
                    WHEN MAX(CASE WHEN r.broker LIKE '%{GIVES_BY_TOPIC}%' THEN c.t END) IS NOT NULL
                         AND COALESCE(a.highest_of_topic, -1) < a.seq THEN 'backlog'
                    WHEN MAX(CASE WHEN r.broker LIKE '%{RETRIES_LATE}%' THEN c.t END) IS NOT NULL
                         AND a.dup = 1 THEN 'retry'
                    WHEN COUNT(l.t) > 0 THEN 'replay'
                    WHEN COUNT(o.t) > 0 OR COUNT(f.site) > 0 THEN 'repaired'
                    WHEN COUNT(m.begins) > 0 THEN 'met'
                    WHEN COUNT(q.t) > 0 THEN 'quality'
                    WHEN MAX(d.t) <= a.t THEN 'disk' ELSE 'ours' END AS cause,
               a.site, a.session, a.publisher, a.seq, a.topic, a.t
        FROM arrivals a
        JOIN runs r ON r.run = a.run
        LEFT JOIN events e ON e.run = a.run AND e.op = 'tree'
             AND e.t BETWEEN a.since - CASE WHEN {OVERLAY} THEN {CHANGE} ELSE r.settle END AND a.t
        LEFT JOIN published h ON h.run = a.run AND h.publisher = a.publisher AND h.seq = a.highest
        LEFT JOIN repeated g ON g.run = a.run AND g.session = a.session AND g.publisher = a.publisher
             AND g.seq = a.seq AND g.t <= a.t AND (g.t >= g.begins OR h.t < g.begins)
        LEFT JOIN replayable l ON l.run = a.run AND l.session = a.session AND l.publisher = a.publisher
             AND l.seq = a.seq AND l.t <= a.t
        LEFT JOIN damaged d ON d.run = a.run
        LEFT JOIN repaired o ON o.run = a.run AND o.publisher = a.publisher AND o.seq = a.seq
             AND o.broker = 'broker/' || a.site AND o.t <= a.t
        LEFT JOIN forgotten f ON f.run = a.run AND f.publisher = a.publisher AND f.seq = a.seq
             AND f.site = a.site AND a.retain = 1
        LEFT JOIN disturbances m ON m.run = a.run AND a.retain = 1 AND m.ends + r.settle >= a.since
             AND (m.ends <= a.t OR m.kind = 'hold-session' AND m.begins <= a.t)
             AND m.target NOT LIKE 'broker/%' AND r.target = 'ildm' AND NOT ({OVERLAY})
        LEFT JOIN events q ON q.run = a.run AND q.session <> a.session AND q.session <> ''
             AND q.op IN ('connect', 'subscribe', 'unsubscribe')
             AND q.t BETWEEN a.since - r.settle AND a.t AND a.less > 0
        LEFT JOIN disturbances b ON b.run = a.run AND b.ends + {CHANGE} >= a.since
             AND b.begins <= a.t AND {OVERLAY}
        LEFT JOIN (SELECT w.run, w.session, m.topic, w.entitled FROM subscriptions w
                   JOIN matches m ON m.filter = w.filter) k
             ON k.run = a.run AND k.session = a.session AND k.topic = a.topic AND k.entitled >= a.since
             AND {OVERLAY}
        LEFT JOIN events c ON c.run = a.run AND c.session = a.session AND c.op = 'connect' AND c.phase = 'ok'
             AND c.value = 'resume' AND c.t BETWEEN a.since AND a.t
        WHERE a.seq < a.highest
        GROUP BY a.run, r.algorithm, a.site, a.session, a.publisher, a.seq, a.topic, a.t, a.opening,
                 a.highest_of_topic, a.dup""",
    "retained": """
        SELECT k.run, CASE WHEN MAX(d.t) >= 0 THEN 'disk'
                           WHEN COUNT(u.site) > 0 THEN 'unknown' ELSE 'ours' END AS cause,
               MIN(k.site) AS site, '' AS session, '' AS publisher, -1 AS seq, k.topic, 0.0 AS t
        FROM kept k LEFT JOIN damaged d ON d.run = k.run
        LEFT JOIN unknown u ON u.run = k.run AND u.topic = k.topic AND u.site = k.site AND u.value = k.value
        GROUP BY k.run, k.topic HAVING COUNT(DISTINCT k.value) > 1""",
    "stale": """
        SELECT k.run, CASE WHEN d.t >= 0 THEN 'disk' ELSE 'ours' END AS cause, k.site, '' AS session,
               w.publisher, w.seq, k.topic, 0.0 AS t
        FROM kept k JOIN newest w ON w.run = k.run AND w.topic = k.topic
        LEFT JOIN damaged d ON d.run = k.run
        WHERE NOT EXISTS (SELECT 1 FROM published p WHERE p.run = k.run AND p.topic = k.topic
                          AND p.publisher = w.publisher AND p.retain = 1 AND p.seq >= w.seq
                          AND p.value = k.value)""",
    "unbounded": """
        SELECT r.run, 'ours' AS cause, '' AS site, r.process AS session, '' AS publisher,
               MAX(r.highest) AS seq, r.topic, MAX(r.t) AS t
        FROM readings r JOIN bounds b ON b.run = r.run AND b.process = r.process AND b.topic = r.topic
        WHERE r.highest > b.bound
        GROUP BY r.run, r.process, r.topic""",
    "unadmitted": f"""
        SELECT l.run, 'ours' AS cause, '' AS site, '' AS session, '' AS publisher,
               l.messages - COALESCE(a.messages, 0) AS seq, '' AS topic, 0.0 AS t
        FROM (SELECT run, COUNT(DISTINCT publisher || '/' || CAST(seq AS VARCHAR(20)) || '@' || site)
                     AS messages
              FROM found_lost WHERE cause = 'ours' GROUP BY run) l
        JOIN runs r ON r.run = l.run AND r.target = 'ildm'
        LEFT JOIN (SELECT run, SUM(highest) AS messages FROM readings
                   WHERE {" OR ".join(f"topic LIKE '{name}'" for name in ADMITTING)}
                   GROUP BY run) a ON a.run = l.run
        WHERE l.messages > COALESCE(a.messages, 0)""",
}
"""Each becomes a table, ``found_NAME``, which those after it may use.

``lost``: owed at QoS 1 or 2, acknowledged, not received. ``twice``: received at QoS 2 more than once by one
session from one life of a broker. ``unexpected``: received, but never published so, or not subscribed to.
``order``: the first receipt of a message after that of a later one of its publisher and QoS. ``retained``:
sites differ in what they keep of a topic after quiet. ``stale``: a site keeps something older than what was
acknowledged last. ``unbounded``: a gauge of ``session`` was ``seq``, over its bound. ``unadmitted``: of the
messages lost, by site, ``seq`` are in no counter of any node.
"""

GROUP = ("engine", "target", "algorithm", "broker", "store", "mode", "sites", "fault")
"""Columns of ``runs`` by which the outcome is summed up."""

_COUNTS = {
    "published": "SELECT run, COUNT(*) AS amount FROM published WHERE t IS NOT NULL GROUP BY run",
    "acknowledged": "SELECT run, COUNT(acknowledged) AS amount FROM published GROUP BY run",
    "refused": "SELECT run, SUM(refused) AS amount FROM published WHERE op = 'publish' GROUP BY run",
    "received": "SELECT run, COUNT(*) AS amount FROM receipts GROUP BY run",
    "repeated": "SELECT run, SUM(messages) - COUNT(*) AS amount FROM receipts WHERE qos = 1 GROUP BY run",
    "owed": "SELECT run, COUNT(*) AS amount FROM owed WHERE qos > 0 GROUP BY run",
    "owed_qos0": "SELECT run, COUNT(*) AS amount FROM owed WHERE qos = 0 GROUP BY run",
    "missing_qos0": "SELECT run, COUNT(*) AS amount FROM missing WHERE qos = 0 GROUP BY run",
    "faults": "SELECT run, COUNT(*) AS amount FROM disturbances GROUP BY run",
}
COUNTS = tuple(_COUNTS)
"""What is counted of each run beside what was found, for every figure of the report to have its whole."""


def counted() -> str:
    """A query of the sums of `COUNTS`, runs and their seconds, by `GROUP`."""
    columns = ", ".join(f"r.{name}" for name in GROUP)
    sums = ", ".join(f"CAST(COALESCE(SUM({name}.amount), 0) AS BIGINT) AS {name}" for name in COUNTS)
    joins = " ".join(f"LEFT JOIN ({sql}) {name} ON {name}.run = r.run" for name, sql in _COUNTS.items())
    return (
        f"SELECT {columns}, COUNT(*) AS runs, SUM(r.seconds) AS seconds, "
        f"SUM(CASE WHEN r.complete THEN 0 ELSE 1 END) AS incomplete, {sums} "
        f"FROM runs r {joins} GROUP BY {columns}"
    )


def found(name: str) -> str:
    """A query of how many findings against an invariant there are, in how many runs, by `GROUP` and cause."""
    columns = ", ".join(f"r.{name}" for name in GROUP)
    return (
        f"SELECT {columns}, f.cause, COUNT(*) AS found, COUNT(DISTINCT f.run) AS runs "
        f"FROM found_{name} f JOIN runs r ON r.run = f.run GROUP BY {columns}, f.cause"
    )
