//! How large the database is.

/// Sizes of tables. [`Scale::full`] is what the benchmark asks for; smaller ones are for tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    pub warehouses: u32,
    pub items: u32,
    /// Of a warehouse: up to 10.
    pub districts: u8,
    /// Of a district. It begins with as many orders.
    pub customers: u32,
}

impl Scale {
    pub fn full(warehouses: u32) -> Scale {
        Scale {
            warehouses,
            items: 100_000,
            districts: 10,
            customers: 3000,
        }
    }

    /// Orders of a district that are delivered when it is loaded: 2,100 of 3,000.
    pub fn delivered(&self) -> u32 {
        self.customers - self.customers * 3 / 10
    }

    pub fn is_legal(&self) -> bool {
        self.warehouses > 0
            && self.items > 0
            && (1..=10).contains(&self.districts)
            && self.customers > 0
    }
}
