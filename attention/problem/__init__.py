"""What arrays ask for."""
