"""The commands of the command line: a module for each subject."""

__all__: list[str] = []
