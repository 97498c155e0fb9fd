"""How time is taken on a card: contestants in turn in CUDA graphs, by regime, with the clock and the power of the card beside them."""
