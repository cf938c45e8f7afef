"""Fields, rendering, training, surfaces and views; docs/ARCHITECTURE.md describes each package."""
