//! What a page for people is made of. Names and words come from elsewhere, so each of them is escaped here, and
//! nowhere else.

use std::fmt::Write;

const INFALLIBLE: &str = "writing to a string";
/// More are counted, not shown: a page stays a page.
const ROWS_MAX: usize = 200;
/// The same for the letters of a word: names of zones may be long.
const LETTERS_MAX: usize = 2000;

/// The inner part of a page, in HTML.
#[derive(Default, Debug)]
pub struct Body(String);

/// A text as a part of a page.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars().take(LETTERS_MAX) {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    if text.chars().nth(LETTERS_MAX).is_some() {
        out.push('…');
    }
    out
}

impl Body {
    pub fn html(&self) -> &str {
        &self.0
    }

    /// `tag` and `class` are ours, `text` is not.
    fn element(&mut self, tag: &'static str, class: &'static str, text: &str) {
        let class = match class {
            "" => String::new(),
            class => format!(" class=\"{class}\""),
        };
        write!(self.0, "<{tag}{class}>{}</{tag}>", escaped(text)).expect(INFALLIBLE);
    }

    /// What the browser shows beside the page.
    pub(super) fn tab(&mut self, text: &str) {
        self.element("title", "", text);
    }

    pub fn title(&mut self, text: &str) {
        self.element("h1", "", text);
    }

    pub fn heading(&mut self, text: &str) {
        self.element("h2", "", text);
    }

    pub fn name(&mut self, text: &str) {
        self.element("b", "", text);
    }

    pub fn paragraph(&mut self, class: &'static str, text: &str) {
        self.element("p", class, text);
    }

    pub fn small(&mut self, text: &str) {
        self.element("small", "", text);
    }

    pub fn word(&mut self, class: &'static str, text: &str) {
        self.element("span", class, text);
    }

    /// Text as it stands, with its lines, as many as fit on a page.
    pub fn plain(&mut self, text: &str) {
        self.0.push_str("<pre tabindex=\"0\">");
        let mut lines = text.lines();
        for line in lines.by_ref().take(ROWS_MAX) {
            self.0.push_str(&escaped(line));
            self.0.push('\n');
        }
        self.0.push_str("</pre>");
        self.left_off(lines.count(), "lines");
    }

    /// A box of a kind that the style knows.
    pub fn within(&mut self, class: &'static str, fill: impl FnOnce(&mut Body)) {
        write!(self.0, "<div class=\"{class}\">").expect(INFALLIBLE);
        fill(self);
        self.0.push_str("</div>");
    }

    pub fn list(&mut self, lines: &[String]) {
        if lines.is_empty() {
            return;
        }
        self.0.push_str("<ul>");
        for line in lines.iter().take(ROWS_MAX) {
            self.element("li", "", line);
        }
        self.0.push_str("</ul>");
        self.left_off(lines.len().saturating_sub(ROWS_MAX), "lines");
    }

    /// Rows under their titles, if they have some.
    pub fn table(&mut self, titles: &[&str], rows: &[Vec<String>]) {
        self.0
            .push_str("<div class=\"wide\" tabindex=\"0\"><table>");
        if !titles.is_empty() {
            self.0.push_str("<tr>");
            titles
                .iter()
                .for_each(|title| self.element("th", "", title));
            self.0.push_str("</tr>");
        }
        for row in rows.iter().take(ROWS_MAX) {
            self.0.push_str("<tr>");
            row.iter().for_each(|cell| self.element("td", "", cell));
            self.0.push_str("</tr>");
        }
        self.0.push_str("</table></div>");
        self.left_off(rows.len().saturating_sub(ROWS_MAX), "rows");
    }

    fn left_off(&mut self, count: usize, what: &str) {
        if count > 0 {
            self.paragraph("", &format!("and {count} more {what}"));
        }
    }

    /// What several numbers were, the newest last. A number that is none is a gap.
    pub fn lines(&mut self, lines: &[(&str, Vec<f64>)]) {
        if lines.is_empty() {
            return self.paragraph(
                "",
                "No point of it is there yet: there is one every ten seconds.",
            );
        }
        self.within("grid", |out| {
            for (name, points) in lines {
                out.line(name, points);
            }
        });
    }

    fn line(&mut self, name: &str, points: &[f64]) {
        let most = points.iter().copied().fold(0.0, f64::max);
        let last = points.iter().rev().find(|point| !point.is_nan());
        let name = escaped(name);
        write!(
            self.0,
            "<figure>{name}: {}, at most {}<svg viewBox=\"0 0 360 42\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{name}\">",
            number(last.copied().unwrap_or(0.0)),
            number(most)
        )
        .expect(INFALLIBLE);
        let mut parts = points.iter().enumerate().peekable();
        while parts.peek().is_some() {
            let mut places = String::new();
            while let Some((x, y)) = parts.next_if(|(_, y)| !y.is_nan()) {
                let height = if most > 0.0 { 40.0 * y / most } else { 0.0 };
                write!(places, "{x},{:.1} ", 41.0 - height).expect(INFALLIBLE);
            }
            if !places.is_empty() {
                write!(self.0, "<polyline points=\"{}\"/>", places.trim_end()).expect(INFALLIBLE);
            }
            parts.next();
        }
        self.0.push_str("</svg></figure>");
    }

    /// Moments of a span of time, each between 0, its begin, and 1, its end.
    pub fn moments(&mut self, name: &str, places: &[f64]) {
        write!(
            self.0,
            "<svg class=\"moments\" viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{}\"><line x1=\"0\" y1=\"10\" x2=\"1000\" y2=\"10\"/>",
            escaped(name)
        )
        .expect(INFALLIBLE);
        for place in places.iter().take(ROWS_MAX) {
            let x = 996.0 * place.clamp(0.0, 1.0);
            write!(
                self.0,
                "<rect x=\"{x:.0}\" y=\"1\" width=\"4\" height=\"18\"/>"
            )
            .expect(INFALLIBLE);
        }
        self.0.push_str("</svg>");
    }
}

/// A number with as many digits as are read.
fn number(of: f64) -> String {
    match of {
        _ if of == 0.0 => "0".into(),
        _ if of.abs() >= 100.0 => format!("{of:.0}"),
        _ => format!("{of:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_from_elsewhere_are_text_wherever_they_stand() {
        let evil = "<script>\"'&</script>";
        let mut body = Body::default();
        body.title(evil);
        body.heading(evil);
        body.name(evil);
        body.paragraph("head", evil);
        body.small(evil);
        body.word("role", evil);
        body.plain(evil);
        body.list(&[evil.into()]);
        body.table(&[evil], &[vec![evil.into()]]);
        body.lines(&[(evil, vec![1.0])]);
        body.moments(evil, &[0.5]);
        let html = body.html();
        let safe = "&lt;script&gt;&quot;&#39;&amp;&lt;/script&gt;";
        assert_eq!(html.matches(safe).count(), 13, "{html}");
        assert!(!html.contains("<script") && !html.contains("style="));
    }

    #[test]
    fn what_is_too_much_for_a_page_is_counted() {
        let mut body = Body::default();
        body.list(&vec!["x".to_owned(); 1000]);
        body.table(&["t"], &vec![vec!["y".to_owned()]; 1000]);
        body.plain(&"z\n".repeat(1000));
        body.name(&"w".repeat(100_000));
        let html = body.html();
        assert_eq!(html.matches("and 800 more").count(), 3);
        assert!(html.len() < 16_000, "{}", html.len());
    }

    #[test]
    fn a_line_has_a_gap_where_nothing_was_known() {
        let mut body = Body::default();
        body.lines(&[("n", vec![1.0, 2.0, f64::NAN, 4.0])]);
        let html = body.html();
        let two = "<polyline points=\"0,31.0 1,21.0\"/><polyline points=\"3,1.0\"/>";
        assert!(
            html.contains(two) && html.contains("n: 4.00, at most 4.00"),
            "{html}"
        );
    }
}
