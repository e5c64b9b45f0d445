"""The E5 report: page, tables, plots and words."""
