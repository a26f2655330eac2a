"""Stories without a letter, and the experiment about them."""
