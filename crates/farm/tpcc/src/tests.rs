mod rows;
mod runs;
