"""The formulas that `verify` checks, each written out by hand as in lecture notes."""
