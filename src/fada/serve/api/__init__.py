"""The HTTP interface, a module for each subject."""
