"""What runs the jobs on ECS by EventBridge Scheduler, with its roles and alarms.

Each resource is made once, as plain values; the template, the bare files and the comparison with what is deployed all
take it from there.
"""
