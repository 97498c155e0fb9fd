"""What a kernel is specialised to, and what that takes of an SM."""
