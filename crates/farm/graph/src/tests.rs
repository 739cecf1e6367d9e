mod bytes;
mod model;
mod operations;
