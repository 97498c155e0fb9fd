"""What PTX is: the instruction table, the tree, and text to tree and back."""
