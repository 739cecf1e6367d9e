//! How a file is opened, and how much room a disk has.

/// How to open a file. All false: an existing file, for reading and writing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// Creates the file if it does not exist.
    pub create: bool,
    /// Empties the file.
    pub truncate: bool,
    /// Creates the file, and fails if it exists.
    pub create_new: bool,
    /// Opens the file for reading only. This works for files without write permission as well.
    pub read_only: bool,
    /// Waits until no other exclusive handle is open. An abandoned handle, or a call that has not returned, may still
    /// write; it must not write into a file that has another owner by then.
    pub exclusive: bool,
    /// Only the owner may read and write the file, if this makes it.
    pub private: bool,
}

/// Size and free space, in bytes, of the disk that holds a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    pub total: u64,
    /// Bytes available to this process.
    pub free: u64,
}
