mod cells;
mod layouts;
mod old;
mod races;
mod regions;
mod slabs;
