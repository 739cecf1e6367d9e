//! Floor 2: judges histories of transactions for opacity.
