"""What came of it: the counts beside those of the file, and the report."""
