"""Proving a launch: many schedules of one input, their reports side by side, and whether they leave the same memory."""
