"""What overlays share to give every message once: log, receipts, pacing."""
