//! Floor 5: backups of the in-memory engine on disk (FaRMv2, §4.9).
