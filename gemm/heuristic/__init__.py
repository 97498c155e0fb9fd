"""Which configuration a problem gets on a card: tables of measured ones, and a model of time."""
