"""The formats that lines are read from and written to, one module each."""
