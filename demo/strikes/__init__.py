"""Starting those programs, watching them, and killing them."""
