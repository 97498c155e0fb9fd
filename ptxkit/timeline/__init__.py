"""When each warp of a launch did what: the marks of a kernel, read.

`kernel.timeline(grid, ...)` on a GPU and `kernel.simulate(grid, ..., marks=True).timeline` on the CPU device give a `Timeline`.
"""

from .timeline import Overhead as Overhead
from .timeline import Span as Span
from .timeline import Timeline as Timeline
from .timeline import Total as Total
from .timeline import Track as Track
