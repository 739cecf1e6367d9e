mod bytes;
mod model;
mod operations;
mod ships;
