//! The nine tables' rows (clause 1.3). Money is in cents, rates are in ten-thousandths, times in milliseconds since
//! 1970. A carrier or a time of 0 stands for null. Columns of the primary key are in the key, not in the row.
//!
//! WAREHOUSE and DISTRICT are cut into objects (vertical partitions, clause 1.4.5): what never changes, the sum of
//! payments, and the next order's number. So payments do not conflict with orders.

use crate::field::{Text, rows};

rows! {
    /// What WAREHOUSE and DISTRICT have in common, and never changes.
    Place {
        name: Text,
        street_1: Text,
        street_2: Text,
        city: Text,
        state: Text,
        zip: Text,
        /// W_TAX or D_TAX, in ten-thousandths.
        tax: u32,
    }

    /// W_YTD or D_YTD.
    YearToDate {
        cents: i64,
    }

    /// D_NEXT_O_ID.
    NextOrder {
        id: u32,
    }

    Customer {
        first: Text,
        middle: Text,
        last: Text,
        street_1: Text,
        street_2: Text,
        city: Text,
        state: Text,
        zip: Text,
        phone: Text,
        since: u64,
        credit: Text,
        credit_limit: i64,
        discount: u32,
        balance: i64,
        paid: i64,
        payments: u32,
        deliveries: u32,
        data: Text,
    }

    History {
        district: u8,
        date: u64,
        amount: i64,
        data: Text,
    }

    Order {
        customer: u32,
        entered: u64,
        carrier: u8,
        lines: u8,
        all_local: u8,
    }

    OrderLine {
        item: u32,
        supply_warehouse: u32,
        delivered: u64,
        quantity: u8,
        amount: i64,
        district_info: Text,
    }

    Item {
        image: u32,
        name: Text,
        price: i64,
        data: Text,
    }

    Stock {
        quantity: u32,
        year_to_date: u32,
        orders: u32,
        remote: u32,
        /// S_DIST_01 to S_DIST_10, one behind the other.
        district_infos: Text,
        data: Text,
    }
}

/// Bytes of one S_DIST.
pub const DISTRICT_INFO_BYTES: usize = 24;
