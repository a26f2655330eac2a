"""The report: one self-contained HTML file about one or more runs."""
