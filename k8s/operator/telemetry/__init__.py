"""What a pool's controller reads: scrapes, probes, a Prometheus, the gateway's counts."""
