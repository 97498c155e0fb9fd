"""Layer 5: arguments to tensor maps and scalars, workspaces, and one launch on a GPU or on the CPU device."""
