"""One launch of attention, on a GPU or on the CPU device."""
