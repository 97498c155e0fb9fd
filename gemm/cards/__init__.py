"""One value and one table for each card: what is known of it, and which configurations were the fastest on it."""
