"""For tests: memory stores, real servers on loopback, fault injection."""
