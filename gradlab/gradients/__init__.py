"""What is measured: gradients at every encoder state, and their parts."""
