//! Floor 5: membership of the in-memory engine: configurations, regions, and the clock of a process.
