"""OctopiA: content-based publish/subscribe on clusters of brokers."""
