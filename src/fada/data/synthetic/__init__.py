"""Made-up lines with a controlled shift of letter frequencies."""
