"""Prefix sharing: topics that begin with certain prefixes go to every site, all others stay local."""

from ildm.api import Link, PluginConfig, Route, TreeAlgorithm


class Options(PluginConfig):
    """The keys beside ``name`` in the configuration file."""

    prefixes: list[str]
    qos: int = 2


class PrefixSharing(TreeAlgorithm[Options]):
    """A site keeps what concerns nobody else, such as its sensors' raw readings, to itself."""

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        if not topic.startswith(tuple(self.config.prefixes)):
            self.api.count("topics_kept_local")  # the node asks once for each topic, not each message
            return ()
        return [(link, self.config.qos) for link in self.api.links if link is not source]

    def on_link_up(self, link: Link) -> None:
        self.api.log("sharing begins", neighbor=link.node_id, prefixes=self.config.prefixes)
