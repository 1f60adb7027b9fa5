"""What is run: training, one run, the sweep, the tables on disk."""
