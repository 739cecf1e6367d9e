//! Floor 4: the log system (FDB §2.3.2, §2.4.3, §2.4.4).

pub mod cursor;
