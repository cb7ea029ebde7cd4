"""The rules, without any input or output: what a plan is, who may approve it, how outcomes add up.

Nothing in here opens a connection, reads a clock or logs. Instants, ids and environment come in as arguments,
so that every rule can be tested as a table of cases.
"""
