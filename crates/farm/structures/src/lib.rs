//! Floor 5: structures of objects: hash table, B-tree, keys and values.
