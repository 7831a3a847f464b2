"""Programs to trace on a card; each runs by itself with nothing but PyTorch."""
