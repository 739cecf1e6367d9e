//! Some seeds of each workload, and the planted faults that they find.
