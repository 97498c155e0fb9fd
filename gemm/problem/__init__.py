"""What is asked for: arguments checked, extents, layouts and strides."""
