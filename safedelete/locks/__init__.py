"""Locks that keep two runs of one job apart."""
