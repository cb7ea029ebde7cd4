"""Kill a run at every I/O boundary, let a writer and the next runs go, and ask the stores whether the promises held."""
