"""The durable record of runs, batches, approvals and leases, over SQLAlchemy."""
