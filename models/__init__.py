"""The models room: fields, rendering, training, surfaces and views; docs/ARCHITECTURE.md names each part."""
