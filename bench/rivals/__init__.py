"""What Quire is measured beside: other stores, bare loops, and figures that others published."""
