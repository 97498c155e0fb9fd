"""Limits of the ISA that the table, the rules, the CPU device and the helpers share."""

MBARRIER = 2**20 - 1
"""The most arrivals that a phase of an mbarrier waits for, and the most bytes that may be outstanding on it."""

__all__ = ["MBARRIER"]
