"""The outcome: the counts beside those of the file, and the report."""
