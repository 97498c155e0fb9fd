"""Random launches on the GPU against float64: dense products and grouped ones."""
