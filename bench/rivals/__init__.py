"""The rivals of Quire: other stores, bare loops, and figures that others published."""
