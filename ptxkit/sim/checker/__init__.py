"""The checker: an observer that finds what other schedules, or the hardware, would do wrong."""

from .life import Checker as Checker
