//! A table that fits the width of a screen, and is sorted as the user likes.

use std::cmp::Ordering;

/// Between two columns.
const GAP: usize = 2;
/// The least of the last column.
const REST: usize = 14;

/// A column. The first stands at the left, the others at the right of their room, and the last one has what is left.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub title: &'static str,
    pub width: usize,
    /// On a narrow screen those with the lowest go first; those with 9 stay.
    pub weight: u8,
}

/// What stands in a column, and what it counts as when the rows are sorted.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    pub text: String,
    pub amount: Option<f64>,
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Cell {
        let (text, amount) = (text.into(), None);
        Cell { text, amount }
    }

    /// `-` if there is none.
    pub fn amount(amount: Option<f64>, shown: impl FnOnce(f64) -> String) -> Cell {
        let text = amount.map_or("-".into(), shown);
        Cell { text, amount }
    }
}

#[derive(Clone, Debug)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
}

/// By which column the rows are sorted: amounts from the greatest, texts from the first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Order {
    pub column: usize,
    pub is_turned: bool,
}

impl Table {
    /// The line of the titles, and one for each row, of at most `width` columns of the screen.
    pub fn lines(&self, width: usize, order: Order) -> (String, Vec<String>) {
        let shown = self.shown(width);
        let titles: Vec<&str> = self.columns.iter().map(|column| column.title).collect();
        let mut rows: Vec<&Vec<Cell>> = self.rows.iter().collect();
        rows.sort_by(|one, other| compare(one, other, order));
        let texts = rows.into_iter().map(|row| {
            let texts: Vec<&str> = row.iter().map(|cell| &cell.text[..]).collect();
            self.line(&texts, &shown, width)
        });
        (self.line(&titles, &shown, width), texts.collect())
    }

    /// The same, with the rows as they come.
    pub fn in_order(&self, width: usize) -> Vec<String> {
        let shown = self.shown(width);
        let titles = self.columns.iter().map(|column| column.title).collect();
        let rows = self.rows.iter();
        let rows = rows.map(|row| row.iter().map(|cell| &cell.text[..]).collect());
        let all = std::iter::once(titles).chain(rows);
        all.map(|texts: Vec<&str>| self.line(&texts, &shown, width))
            .collect()
    }

    /// The columns for which there is room.
    fn shown(&self, width: usize) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let last = self.columns.len().saturating_sub(1);
        let taken = |shown: &[usize]| -> usize {
            let widths = shown.iter().filter(|at| **at != last);
            widths.map(|at| self.columns[*at].width + GAP).sum()
        };
        while taken(&shown) + REST > width {
            let weight = |at: &usize| self.columns[*at].weight;
            let lightest = shown.iter().copied().filter(|at| weight(at) < 9);
            let Some(lightest) = lightest.min_by_key(weight) else {
                break;
            };
            shown.retain(|at| *at != lightest);
        }
        shown
    }

    fn line(&self, texts: &[&str], shown: &[usize], width: usize) -> String {
        let mut line = String::new();
        for at in shown {
            let (text, room) = (texts[*at], self.columns[*at].width);
            if *at == 0 {
                line += &format!("{text:<room$}");
            } else if *at + 1 == texts.len() {
                let rest = width.saturating_sub(line.chars().count() + GAP);
                line += &format!("{:GAP$}{}", "", fitting(text, rest));
            } else {
                line += &format!("{:GAP$}{text:>room$}", "");
            }
        }
        line.trim_end().chars().take(width).collect()
    }
}

/// As many words of a text as there is room for, and how many more it has.
fn fitting(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let words: Vec<&str> = text.split(' ').collect();
    let some = |count: usize| format!("{} +{}", words[..count].join(" "), words.len() - count);
    let fits = |count: &usize| some(*count).chars().count() <= width;
    (1..words.len())
        .rev()
        .find(fits)
        .map_or_else(|| text.chars().take(width).collect(), some)
}

fn compare(one: &[Cell], other: &[Cell], order: Order) -> Ordering {
    let by = |row: &[Cell]| row.get(order.column).cloned();
    let (a, b) = (by(one), by(other));
    let amount = |cell: &Option<Cell>| cell.as_ref().and_then(|cell| cell.amount);
    let turned = |found: Ordering| {
        if order.is_turned {
            found.reverse()
        } else {
            found
        }
    };
    let found = match (amount(&a), amount(&b)) {
        (None, None) => turned(a.map(|cell| cell.text).cmp(&b.map(|cell| cell.text))),
        (Some(a), Some(b)) => turned(b.total_cmp(&a)),
        // What is not known comes last.
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
    };
    let first = |row: &[Cell]| row.first().map(|cell| cell.text.clone());
    found.then_with(|| first(one).cmp(&first(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |title, width, weight| Column {
            title,
            width,
            weight,
        };
        let row = |name: &str, cpu: Option<f64>, roles: &str| {
            let cpu = Cell::amount(cpu, |cpu| format!("{cpu:.0}%"));
            vec![Cell::text(name), cpu, Cell::text("x"), Cell::text(roles)]
        };
        Table {
            columns: vec![
                column("NAME", 6, 9),
                column("CPU", 4, 8),
                column("LAG", 4, 1),
                column("ROLES", 0, 9),
            ],
            rows: vec![
                row("b", Some(9.0), "log storage proxy"),
                row("a", None, "log"),
                row("c", Some(50.0), "storage"),
            ],
        }
    }

    #[test]
    fn a_table_uses_the_width_that_there_is() {
        let lines = |width| table().lines(width, Order::default());
        let (titles, wide) = lines(60);
        assert_eq!(titles, "NAME     CPU   LAG  ROLES");
        assert_eq!(wide[1], "b         9%     x  log storage proxy");
        let (titles, narrow) = lines(28);
        assert_eq!(titles, "NAME     CPU  ROLES");
        assert_eq!(narrow[1], "b         9%  log storage +1");
        let (_, narrower) = lines(10);
        assert!(narrower.iter().all(|line| line.chars().count() <= 10));
    }

    #[test]
    fn rows_are_sorted_by_a_column_and_what_is_not_known_comes_last() {
        let names = |column, is_turned| {
            let order = Order { column, is_turned };
            let lines = table().lines(60, order).1;
            let names = lines.iter().map(|line| line[..1].to_owned());
            names.collect::<String>()
        };
        assert_eq!(names(0, false), "abc");
        assert_eq!(names(0, true), "cba");
        assert_eq!(names(1, false), "cba");
        assert_eq!(names(1, true), "bca");
        assert_eq!(names(2, false), "abc");
    }
}
