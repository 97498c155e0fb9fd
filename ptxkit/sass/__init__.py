"""Machine code: cubins, listings, and scheduling hints."""
