"""The benchmark of the smallest transactions, beside SQLite and beside another checkout."""
