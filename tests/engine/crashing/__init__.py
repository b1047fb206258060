"""The crash workloads of the engine (see `tests.kit.crashes`): drawn ones, and scripts of parts."""
