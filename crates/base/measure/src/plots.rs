//! Plots made of elements with widths, so that they fit any window, by day and by night.

use crate::text::{escape, grouped};
use serde_json::Value;
use std::fmt::Write;

const INFALLIBLE: &str = "writing to a string";
/// Colours of sets of runs; more sets begin again.
const COLOURS: usize = 4;
const SECONDS_BETWEEN_MARKS: usize = 5;

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1c2430;--faint:#5b6675;--page:#fff;--line:#dde2ea;\
--c0:#2f6fb2;--c1:#c9642c;--c2:#3d8b5a;--c3:#8656a8;--good:#1d7a43;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--text:#e4e8ee;--faint:#9aa6b5;--page:#14181f;--line:#333c4a;\
--c0:#6aa5e3;--c1:#e8935f;--c2:#6cc28e;--c3:#bb92dc;--good:#6fd197;--bad:#ff8f85}}\
*{box-sizing:border-box}\
body{font:15px/1.5 system-ui,sans-serif;max-width:74rem;margin:2rem auto;padding:0 1rem;\
color:var(--text);background:var(--page)}\
h1{font-size:1.5rem}h2{font-size:1.2rem;margin:2.5rem 0 .3rem;padding-top:.7rem;border-top:1px solid var(--line)}\
p{margin:.3rem 0 1rem;color:var(--faint)}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr));gap:1.2rem 2rem}\
figure{margin:0;min-width:0}figcaption{font-weight:600;margin-bottom:.3rem}\
.row{display:grid;grid-template-columns:8.5rem minmax(0,1fr);gap:.6rem;align-items:center;margin:.25rem 0;\
font-size:.8rem}\
.name{text-align:right;line-height:1.15;overflow-wrap:anywhere}\
.bar{display:flex;align-items:center;gap:.4rem;font-variant-numeric:tabular-nums;line-height:1.2}\
.bar i{height:.9rem;min-width:1px;border-radius:0 2px 2px 0}\
.span{position:relative;height:1.05rem;background:linear-gradient(var(--line),var(--line)) center/100% 1px no-repeat}\
.span i{position:absolute}.span .from{top:calc(50% - 1px);height:2px}\
.span .at{top:calc(50% - 4px);width:8px;height:8px;margin-left:-4px;border-radius:4px}\
.axis{position:relative;height:1.2rem;color:var(--faint)}.axis span{position:absolute;transform:translateX(-50%)}\
.axis span:first-child{transform:none}.axis span:last-child{transform:translateX(-100%)}\
.c0{background:var(--c0)}.c1{background:var(--c1)}.c2{background:var(--c2)}.c3{background:var(--c3)}\
.seconds{display:flex;align-items:flex-end;gap:1px;height:6rem;border-bottom:1px solid var(--line)}\
.seconds i{flex:1;min-height:1px}\
.key{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;padding:0;list-style:none}\
.key i{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.4rem}\
table{border-collapse:collapse;width:100%;font-size:.82rem;font-variant-numeric:tabular-nums;margin-top:1rem}\
td,th{padding:.2rem .5rem;text-align:right;border-bottom:1px solid var(--line);vertical-align:baseline}\
td:first-child,th:first-child{text-align:left;padding-left:0}th{font-weight:600}\
td i{display:inline-block;width:.6rem;height:.6rem;border-radius:2px;margin-right:.4rem}\
td{white-space:nowrap}td small{display:block;line-height:1.1}.good{color:var(--good)}.bad{color:var(--bad)}\
@media(max-width:62rem){.cards,.cards tbody,.cards tr,.cards td{display:block}.cards tr:first-child{display:none}\
.cards tr{padding:.5rem 0;border-bottom:1px solid var(--line)}\
.cards td{display:flex;justify-content:space-between;gap:1rem;border:0;padding:.05rem 0}\
.cards small{display:inline}.cards td::before{content:attr(data-of);color:var(--faint)}\
.cards td:first-child{font-weight:600;justify-content:flex-start;align-items:center;gap:0}\
.cards td:first-child::before{content:none}}\
@media(max-width:30rem){.row{grid-template-columns:1fr;gap:0}.name{text-align:left}}";

/// The beginning of a page.
pub fn open_page(title: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
        <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title>\
        <style>{STYLE}</style><h1>{title}</h1>"
    )
}

/// Runs that are shown beside each other, each of another set.
pub struct Row<'a> {
    pub label: String,
    pub runs: Vec<(usize, &'a Value)>,
}

pub fn colour(set: usize) -> usize {
    set % COLOURS
}

/// What the colours mean.
pub fn key(out: &mut String, names: &[String]) {
    out.push_str("<ul class=\"key\">");
    for (set, name) in names.iter().enumerate() {
        let (colour, name) = (colour(set), escape(name));
        write!(out, "<li><i class=\"c{colour}\"></i>{name}</li>").expect(INFALLIBLE);
    }
    out.push_str("</ul>");
}

fn open_row(out: &mut String, row: &Row<'_>) {
    let name = escape(&row.label).replace(", ", "<br>");
    write!(
        out,
        "<div class=\"row\"><span class=\"name\">{name}</span><div>"
    )
    .expect(INFALLIBLE);
}

/// A bar for each run; the longest is as long as there is room for.
pub fn bars(
    out: &mut String,
    title: &str,
    rows: &[Row<'_>],
    value: impl Fn(&Value) -> Option<f64>,
) {
    let all = rows.iter().flat_map(|row| &row.runs);
    let most = all.filter_map(|(_, run)| value(run)).fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    write!(out, "<figure><figcaption>{title}</figcaption>").expect(INFALLIBLE);
    for row in rows {
        open_row(out, row);
        for (set, run) in &row.runs {
            let Some(n) = value(run) else { continue };
            let (colour, number) = (colour(*set), grouped(n));
            // The number beside the longest bar has room, too.
            write!(
                out,
                "<div class=\"bar\"><i class=\"c{colour}\" style=\"width:calc((100% - 5.4rem)*{:.4})\"></i>\
                {number}</div>",
                n / most
            )
            .expect(INFALLIBLE);
        }
        out.push_str("</div></div>");
    }
    out.push_str("</figure>");
}

/// A plot of what each second had, as high as `most` at most.
pub fn seconds(out: &mut String, title: &str, set: usize, values: &[u64], most: u64) {
    let (title, colour) = (escape(title), colour(set));
    write!(
        out,
        "<figure><figcaption>{title}</figcaption><div class=\"seconds\">"
    )
    .expect(INFALLIBLE);
    for (second, value) in values.iter().enumerate() {
        let height = *value as f64 / most.max(1) as f64 * 100.0;
        let number = grouped(*value as f64);
        write!(
            out,
            "<i class=\"c{colour}\" style=\"height:{height:.1}%\" title=\"second {second}: {number}\"></i>"
        )
        .expect(INFALLIBLE);
    }
    out.push_str("</div><div class=\"axis\">");
    let count = values.len().max(1);
    for second in (0..count).step_by(SECONDS_BETWEEN_MARKS) {
        let place = second as f64 / count as f64 * 100.0;
        write!(out, "<span style=\"left:{place:.2}%\">{second} s</span>").expect(INFALLIBLE);
    }
    out.push_str("</div></figure>");
}

const QUANTILES: [(&str, &str); 4] = [
    ("p50", "p50"),
    ("p90", "p90"),
    ("p99", "p99"),
    ("p99_9", "p99.9"),
];

fn quantile(run: &Value, q: &str) -> Option<f64> {
    run["latency_ms"][q].as_f64().filter(|ms| *ms > 0.0)
}

/// The latencies from the median to the 99.9th percentile on a logarithmic scale: a line with a mark at each quantile.
pub fn latencies(out: &mut String, title: &str, rows: &[Row<'_>]) {
    let runs = || rows.iter().flat_map(|row| &row.runs);
    let all = || {
        runs()
            .flat_map(|(_, run)| QUANTILES.map(|(q, _)| quantile(run, q)))
            .flatten()
    };
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    if high <= 0.0 {
        return;
    }
    let low = low.log10().floor();
    let high = high.log10().ceil().max(low + 1.0);
    let place = |ms: f64| (ms.log10() - low) / (high - low) * 100.0;
    write!(out, "<figure><figcaption>{title}</figcaption>").expect(INFALLIBLE);
    for row in rows {
        open_row(out, row);
        for (set, run) in &row.runs {
            let marks: Vec<(&str, f64)> = QUANTILES
                .iter()
                .filter_map(|(q, name)| Some((*name, quantile(run, q)?)))
                .collect();
            let (Some((_, first)), Some((_, last))) = (marks.first(), marks.last()) else {
                continue;
            };
            let (first, last, colour) = (place(*first), place(*last), colour(*set));
            write!(
                out,
                "<div class=\"span\"><i class=\"from c{colour}\" style=\"left:{first:.2}%;width:{:.2}%\"></i>",
                last - first
            )
            .expect(INFALLIBLE);
            for (name, ms) in marks {
                write!(
                    out,
                    "<i class=\"at c{colour}\" style=\"left:{:.2}%\" title=\"{name} {ms} ms\"></i>",
                    place(ms)
                )
                .expect(INFALLIBLE);
            }
            out.push_str("</div>");
        }
        out.push_str("</div></div>");
    }
    out.push_str("<div class=\"row\"><span class=\"name\">ms</span><div class=\"axis\">");
    for power in low as i32..=high as i32 {
        let ms = 10f64.powi(power);
        write!(out, "<span style=\"left:{:.2}%\">{ms}</span>", place(ms)).expect(INFALLIBLE);
    }
    out.push_str("</div></div></figure>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_has_a_column_as_high_as_its_share() {
        let mut out = String::new();
        seconds(&mut out, "a & b", 1, &[50, 0, 1000, 7, 7, 7], 1000);
        assert!(out.contains("a &amp; b") && out.matches("<i class=\"c1\"").count() == 6);
        assert!(out.contains("height:5.0%\" title=\"second 0: 50\""));
        assert!(out.contains("height:100.0%\" title=\"second 2: 1 000\""));
        assert!(out.contains("0 s</span>") && out.contains("5 s</span>"));
    }
}
