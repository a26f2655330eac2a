"""What every room uses: files, settings, what is said to the user, processes."""
