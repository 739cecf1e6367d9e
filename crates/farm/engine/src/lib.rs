//! Floor 6: transactions of the in-memory engine (FaRMv2, §4.2, 4.6, 4.7).
