//! Rows, and what is chosen at random.

use crate::Scale;
use crate::choose::{Choose, last_name};
use crate::field::{Row, Text};
use crate::input::{Input, Terminal};
use crate::rows::{Customer, Item, Order, OrderLine, Stock};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn text() -> impl Strategy<Value = Text> {
    prop::collection::vec(any::<u8>(), 0..60).prop_map(Bytes::from)
}

proptest! {
    #[test]
    fn a_row_comes_back_as_it_was(
        numbers: (u32, u32, u64, u8, i64),
        texts in (text(), text()),
        zeros in 0..20usize,
    ) {
        let line = OrderLine {
            item: numbers.0,
            supply_warehouse: numbers.1,
            delivered: numbers.2,
            quantity: numbers.3,
            amount: numbers.4,
            district_info: texts.0.clone(),
        };
        let mut bytes = line.encode();
        bytes.resize(bytes.len() + zeros, 0);
        prop_assert_eq!(OrderLine::decode(bytes.into()), Some(line));
        let item = Item {
            image: numbers.0,
            name: texts.0,
            price: numbers.4,
            data: texts.1,
        };
        prop_assert_eq!(Item::decode(item.encode().into()), Some(item.clone()));
        let cut = item.encode().len() - 1;
        prop_assert_eq!(Item::decode(item.encode()[..cut].to_vec().into()), None);
    }

    #[test]
    fn any_bytes_are_a_row_or_none(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        let bytes = Bytes::from(bytes);
        Customer::decode(bytes.clone());
        Stock::decode(bytes.clone());
        Order::decode(bytes);
    }
}

#[test]
fn last_names_are_three_syllables() {
    assert_eq!(last_name(371), Text::from_static(b"PRICALLYOUGHT"));
    assert_eq!(last_name(40), Text::from_static(b"BARPRESBAR"));
}

#[test]
fn what_is_chosen_lies_within_its_bounds() {
    let mut choose = Choose::new(1);
    let mut seen = [false; 10];
    for _ in 0..5000 {
        assert!((1..=77).contains(&choose.customer(77)));
        assert!((1..=100_000).contains(&choose.item(100_000)));
        seen[choose.within(0, 9) as usize] = true;
        let text = choose.text(3, 5);
        assert!((3..=5).contains(&text.len()) && text.is_ascii());
    }
    assert!(seen.iter().all(|seen| *seen));
    let mut all = choose.permutation(100);
    assert_ne!(all, (1..=100).collect::<Vec<u32>>());
    all.sort();
    assert_eq!(all, (1..=100).collect::<Vec<u32>>());
}

#[test]
fn a_terminal_enters_the_mix() {
    let mut terminal = Terminal::new(Scale::full(3), 2, 1, 7);
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut unused, mut remote) = (0, 0);
    for _ in 0..20_000 {
        let input = terminal.next_input();
        if let Input::NewOrder(order) = &input {
            assert!((5..=15).contains(&order.lines.len()));
            unused += u32::from(order.lines.iter().any(|line| line.item == 100_001));
        }
        if let Input::Payment(payment) = &input {
            remote += u32::from(payment.customer_warehouse != 2);
        }
        let kind = input.name();
        *counts.entry(kind).or_default() += 1;
    }
    assert!((8600..9400).contains(&counts["new order"]), "{counts:?}");
    assert!((8200..9000).contains(&counts["payment"]), "{counts:?}");
    for kind in ["order status", "delivery", "stock level"] {
        assert!((700..900).contains(&counts[kind]), "{counts:?}");
    }
    assert!(
        (50..140).contains(&unused),
        "{unused} of 9,000 order what does not exist"
    );
    assert!(
        (1100..1500).contains(&remote),
        "{remote} of 8,600 pay elsewhere"
    );
}
