"""Fields: parameters and their evaluation at points. State-dict names are those of the published NeuS."""
