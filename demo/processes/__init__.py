"""The programs that work while they are killed: the publisher, the worker, the graph of Spark."""
