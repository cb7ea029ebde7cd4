"""One run of one job: lock, the phases in order, and a final state in the ledger whatever happens."""
