"""The forward pass and the adjoint of each part."""
