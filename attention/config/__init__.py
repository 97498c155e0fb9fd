"""The configuration of an attention kernel."""
