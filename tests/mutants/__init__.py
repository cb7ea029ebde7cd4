"""Break each promise once on purpose, and see that the suite notices: one patch a promise, at the least."""
