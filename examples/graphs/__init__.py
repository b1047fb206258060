"""Small graphs on Spark, as docs/graphs.md shows them."""
