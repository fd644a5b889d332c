# Moquette has no image of its own: its jars come from Maven Central, by version (.ci/moquette/pom.xml) and
# checksum (.ci/moquette/SHA256SUMS), as for the tests.

FROM maven:3.9.9-eclipse-temurin-17 AS build
COPY .ci/moquette /src/.ci/moquette
RUN ["/src/.ci/moquette/fetch"]

FROM eclipse-temurin:17.0.13_11-jre-jammy
RUN groupadd --gid 10002 moquette \
    && useradd --uid 10002 --gid moquette --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin moquette \
    && install -d -o moquette -g moquette -m 0700 /var/lib/moquette
COPY --from=build /src/.cache/moquette /opt/moquette/lib
COPY docker/brokers/moquette.conf /opt/moquette/config/moquette.conf
COPY docker/brokers/log4j.properties /opt/moquette/config/log4j.properties
COPY docker/brokers/answers /usr/local/bin/answers
USER 10002:10002
WORKDIR /var/lib/moquette
VOLUME ["/var/lib/moquette"]
EXPOSE 1883
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=20s --retries=6 CMD ["bash", "/usr/local/bin/answers", "1883"]
ENTRYPOINT ["java", "-XX:+UseSerialGC", "-XX:MaxRAMPercentage=50", "-Dmoquette.path=/opt/moquette", "-Dlog4j.configuration=file:/opt/moquette/config/log4j.properties", "-cp", "/opt/moquette/lib/*", "io.moquette.broker.Server"]
