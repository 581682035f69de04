"""One module per operator: its meaning in NumPy, a second formula, its value checks and its cases."""
