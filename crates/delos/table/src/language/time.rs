//! Timestamps as text: `2026-01-31 12:00:00.5`, in UTC.

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Years that are written with four digits.
const YEARS: std::ops::RangeInclusive<i64> = 0..=9999;

/// Days from 1970-01-01 to a day of the Gregorian calendar. Counts from March, so that a leap day is the last of its
/// year, in cycles of 400 years.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (cycle, in_cycle) = (year.div_euclid(400), year.rem_euclid(400));
    let month = (month + 9) % 12;
    let in_year = (153 * month + 2) / 5 + day - 1;
    cycle * 146_097 + in_cycle * 365 + in_cycle / 4 - in_cycle / 100 + in_year - 719_468
}

/// The reverse of [`days`].
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (cycle, in_cycle) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (in_cycle - in_cycle / 1460 + in_cycle / 36_524 - in_cycle / 146_096) / 365;
    let in_year = in_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = cycle * 400 + year + i64::from(month <= 2);
    (year, month, day)
}

fn numbers<const N: usize>(text: &str, between: char) -> Option<[i64; N]> {
    let number = |part: &str| {
        let is_number = !part.is_empty() && part.len() <= 4;
        let is_number = is_number && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| is_number)
    };
    let parts: Option<Vec<i64>> = text.split(between).map(number).collect();
    parts?.try_into().ok()
}

/// Microseconds since 1970; `None` if the text is no timestamp.
pub fn parse(text: &str) -> Option<i64> {
    let (day_text, time) = text.split_once([' ', 'T']).unwrap_or((text, "0:0:0"));
    let [year, month, day] = numbers(day_text, '-')?;
    let day = days(year, month, day);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':')?;
    let is_time = hour < 24 && minute < 60 && second < 60;
    let is_fraction = (1..=6).contains(&fraction.len());
    let is_fraction = is_fraction && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let fraction: i64 = format!("{fraction:0<6}").parse().ok()?;
    // A day that is not in the calendar comes out as another one.
    let is_day = date(day) == (year, month, numbers::<3>(day_text, '-')?[2]);
    let seconds = hour * 3600 + minute * 60 + second;
    (is_time && is_fraction && is_day).then_some(day * DAY + seconds * SECOND + fraction)
}

/// As [`parse`] reads it, if the year has four digits; else microseconds since 1970.
pub fn format(micros: i64) -> String {
    let (year, month, day) = date(micros.div_euclid(DAY));
    if !YEARS.contains(&year) {
        return micros.to_string();
    }
    let in_day = micros.rem_euclid(DAY);
    let (seconds, fraction) = (in_day / SECOND, in_day % SECOND);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    match fraction {
        0 => text,
        _ => format!("{text}.{fraction:06}")
            .trim_end_matches('0')
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timestamps_are_days_and_times() {
        for (text, micros) in [
            ("1970-01-01", 0),
            ("1970-01-01 00:00:00.5", 500_000),
            ("1969-12-31 23:59:59", -1_000_000),
            ("2000-02-29T12:00:00", 951_825_600_000_000),
            ("2026-11-24 08:00:00", 1_795_507_200_000_000),
        ] {
            assert_eq!(parse(text), Some(micros), "{text}");
        }
        for text in [
            "",
            "1970",
            "1970-13-01",
            "1970-00-01",
            "1970-02-29",
            "1900-02-29",
            "1970-01-01 24:00:00",
            "1970-01-01 1:2",
            "1970-01-01 1:2:3.",
            "1970-01-01 1:2:3.1234567",
            "x-y-z",
            "1970-01-32",
            "+197-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(micros in -60_000_000_000_000_000i64..250_000_000_000_000_000) {
            prop_assert_eq!(parse(&format(micros)), Some(micros));
        }

        #[test]
        fn any_number_can_be_written(micros in any::<i64>()) {
            format(micros);
        }
    }
}
