"""One purge, in the order it happens: plan, preflight, seal, execute, verify."""
