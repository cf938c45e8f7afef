"""Fields: SDFs, densities and colours as functions of points. State-dict names are those of the published NeuS."""
