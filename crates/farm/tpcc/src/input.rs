//! What terminals enter (clauses 2.4.1 to 2.8.1), and which transaction is next (5.2.3).

use crate::choose::Choose;
use crate::field::Text;
use crate::scale::Scale;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOrderLine {
    pub item: u32,
    pub supply_warehouse: u32,
    pub quantity: u8,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOrder {
    pub warehouse: u32,
    pub district: u8,
    pub customer: u32,
    /// 5 to 15. In one order of a hundred the last item does not exist.
    pub lines: Vec<NewOrderLine>,
}

/// How a customer is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    Id(u32),
    /// The one in the middle of those with this name.
    LastName(Text),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payment {
    pub warehouse: u32,
    pub district: u8,
    pub customer_warehouse: u32,
    pub customer_district: u8,
    pub who: Who,
    /// In cents.
    pub amount: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderStatus {
    pub warehouse: u32,
    pub district: u8,
    pub who: Who,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    pub warehouse: u32,
    pub carrier: u8,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StockLevel {
    pub warehouse: u32,
    pub district: u8,
    pub threshold: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

impl Input {
    /// The transaction's name.
    pub fn name(&self) -> &'static str {
        match self {
            Input::NewOrder(_) => "new order",
            Input::Payment(_) => "payment",
            Input::OrderStatus(_) => "order status",
            Input::Delivery(_) => "delivery",
            Input::StockLevel(_) => "stock level",
        }
    }
}

/// A terminal of a warehouse.
pub struct Terminal {
    scale: Scale,
    warehouse: u32,
    /// For stock levels (2.8.1.1).
    district: u8,
    choose: Choose,
}

impl Terminal {
    pub fn new(scale: Scale, warehouse: u32, district: u8, seed: u64) -> Terminal {
        Terminal {
            scale,
            warehouse,
            district,
            choose: Choose::new(seed),
        }
    }

    /// The next transaction of the mix: 45 new orders in 100, 43 payments, 4 of each other kind.
    pub fn next_input(&mut self) -> Input {
        match self.choose.within(1, 100) {
            1..=45 => Input::NewOrder(self.new_order()),
            46..=88 => Input::Payment(self.payment()),
            89..=92 => Input::OrderStatus(self.order_status()),
            93..=96 => Input::Delivery(self.delivery()),
            _ => Input::StockLevel(self.stock_level()),
        }
    }

    fn any_district(&mut self) -> u8 {
        self.choose.within(1, u32::from(self.scale.districts)) as u8
    }

    /// Another warehouse in so many of a hundred cases.
    fn remote(&mut self, percent: u32) -> u32 {
        if self.scale.warehouses == 1 || !self.choose.percent(percent) {
            return self.warehouse;
        }
        let other = self.choose.within(1, self.scale.warehouses - 1);
        other + u32::from(other >= self.warehouse)
    }

    fn who(&mut self) -> Who {
        if self.choose.percent(60) {
            Who::LastName(self.choose.last_name(self.scale.customers))
        } else {
            Who::Id(self.choose.customer(self.scale.customers))
        }
    }

    pub fn new_order(&mut self) -> NewOrder {
        let count = self.choose.within(5, 15);
        let line = |terminal: &mut Terminal| NewOrderLine {
            item: terminal.choose.item(terminal.scale.items),
            supply_warehouse: terminal.remote(1),
            quantity: terminal.choose.within(1, 10) as u8,
        };
        let mut lines: Vec<_> = (0..count).map(|_| line(self)).collect();
        if self.choose.percent(1)
            && let Some(last) = lines.last_mut()
        {
            last.item = self.scale.items + 1;
        }
        NewOrder {
            warehouse: self.warehouse,
            district: self.any_district(),
            customer: self.choose.customer(self.scale.customers),
            lines,
        }
    }

    pub fn payment(&mut self) -> Payment {
        let district = self.any_district();
        let customer_warehouse = self.remote(15);
        let is_home = customer_warehouse == self.warehouse;
        Payment {
            warehouse: self.warehouse,
            district,
            customer_warehouse,
            customer_district: if is_home {
                district
            } else {
                self.any_district()
            },
            who: self.who(),
            amount: i64::from(self.choose.within(100, 500_000)),
        }
    }

    pub fn order_status(&mut self) -> OrderStatus {
        OrderStatus {
            warehouse: self.warehouse,
            district: self.any_district(),
            who: self.who(),
        }
    }

    pub fn delivery(&mut self) -> Delivery {
        Delivery {
            warehouse: self.warehouse,
            carrier: self.choose.within(1, 10) as u8,
        }
    }

    pub fn stock_level(&mut self) -> StockLevel {
        StockLevel {
            warehouse: self.warehouse,
            district: self.district,
            threshold: self.choose.within(10, 20),
        }
    }
}
