//! ZooKeeper's protocol: jute records in frames.
