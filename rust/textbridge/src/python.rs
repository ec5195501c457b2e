//! What templates expect of Python: `json.dumps`, `repr` of a float, `strftime`.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// `json.dumps(value, ensure_ascii=…, indent=…, separators=…, sort_keys=…)`.
pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl Default for JsonStyle {
    fn default() -> Self {
        Self {
            ensure_ascii: false,
            indent: None,
            item_separator: ", ".to_string(),
            key_separator: ": ".to_string(),
            sort_keys: false,
        }
    }
}

/// The filter as Hugging Face defines it for templates: no escaping of HTML, and json.dumps' options.
pub fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let mut style = JsonStyle::default();
    style.ensure_ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    style.sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    if let Some(indent) = kwargs.get::<Option<Value>>("indent")?.filter(|v| !v.is_none()) {
        let unit = match indent.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(indent.as_usize().unwrap_or(0).min(16)),
        };
        style.indent = Some(unit);
        style.item_separator = ",".to_string();
    }
    if let Some(pair) = kwargs.get::<Option<Value>>("separators")?.filter(|v| !v.is_none()) {
        style.item_separator = pair.get_item_by_index(0)?.to_string();
        style.key_separator = pair.get_item_by_index(1)?.to_string();
    }
    kwargs.assert_all_used()?;
    let mut out = String::new();
    write_json(value, &style, 0, &mut out)?;
    Ok(Value::from(out))
}

/// Jinja2's `indent` filter; unlike minijinja's it keeps a trailing line break.
pub fn indent(
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let width = width.or(kwargs.get("width")?);
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let unit = match &width {
        Some(width) if width.as_str().is_some() => width.to_string(),
        Some(width) => " ".repeat(width.as_usize().unwrap_or(4).min(1000)),
        None => " ".repeat(4),
    };
    let mut out = String::with_capacity(text.len() + 64);
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        let wanted = if i == 0 { first } else { blank || !line.is_empty() };
        if wanted {
            out.push_str(&unit);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

/// Jinja2's `iterable` test, for which None is not.
pub fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

fn new_line(style: &JsonStyle, depth: usize, out: &mut String) {
    if let Some(unit) = &style.indent {
        out.push('\n');
        (0..depth).for_each(|_| out.push_str(unit));
    }
}

fn write_json(
    value: &Value,
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    if depth > 200 {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "a value nested too deeply for tojson",
        ));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
        ValueKind::Number => out.push_str(&float_json(f64::try_from(value.clone())?)),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style, out),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut first = true;
            for item in value.try_iter()? {
                if !std::mem::take(&mut first) {
                    out.push_str(&style.item_separator);
                }
                new_line(style, depth + 1, out);
                write_json(&item, style, depth + 1, out)?;
            }
            if !first {
                new_line(style, depth, out);
            }
            out.push(']');
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            out.push('{');
            for (i, key) in keys.iter().enumerate() {
                if i != 0 {
                    out.push_str(&style.item_separator);
                }
                new_line(style, depth + 1, out);
                write_string(&key.to_string(), style, out);
                out.push_str(&style.key_separator);
                write_json(&value.get_item(key)?, style, depth + 1, out)?;
            }
            if !keys.is_empty() {
                new_line(style, depth, out);
            }
            out.push('}');
        }
        kind => {
            let message = format!("{kind} cannot be written as JSON");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(())
}

fn write_string(text: &str, style: &JsonStyle, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (style.ensure_ascii && c > '~') => {
                let mut units = [0u16; 2];
                for unit in c.encode_utf16(&mut units) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn float_json(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_string()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.to_string()
    } else {
        float_repr(value)
    }
}

/// `repr(value)` of a finite float: the shortest digits that read back the same, in exponent form
/// below 1e-4 and from 1e16.
fn float_repr(value: f64) -> String {
    let shortest = format!("{value:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) || value == 0.0 {
        let fixed = format!("{value}");
        return if fixed.contains('.') { fixed } else { fixed + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Broken-down UTC time.
struct Date {
    year: i64,
    month: usize,
    day: i64,
    weekday: usize, // 0 = Sunday
    year_day: i64,  // 1 = 1 January
    seconds: i64,   // of the day
}

/// Civil date from days since 1970-01-01 (Howard Hinnant's "days" algorithms).
fn date(epoch_seconds: i64) -> Date {
    let days = epoch_seconds.div_euclid(86_400);
    let shifted = days + 719_468; // since 0000-03-01
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let from_march = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * from_march + 2) / 153;
    let day = from_march - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let year_day = BEFORE[month as usize - 1] + day + i64::from(leap && month > 2);
    Date {
        year,
        month: month as usize,
        day,
        weekday: (days + 4).rem_euclid(7) as usize,
        year_day,
        seconds: epoch_seconds.rem_euclid(86_400),
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// `datetime.strftime` of the C locale, UTC; a directive it does not know stays as it is.
pub fn strftime(format: &str, epoch_seconds: i64) -> String {
    let d = date(epoch_seconds);
    let (hour, minute, second) = (d.seconds / 3600, d.seconds / 60 % 60, d.seconds % 60);
    let hour12 = (hour + 11) % 12 + 1;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let Some(mut directive) = chars.next() else {
            out.push('%');
            break;
        };
        // "%-d": no padding, as glibc has it.
        let bare = directive == '-';
        if bare {
            match chars.next() {
                Some(next) => directive = next,
                None => {
                    out.push_str("%-");
                    break;
                }
            }
        }
        let mut number = |value: i64, width: usize| {
            let width = if bare { 1 } else { width };
            let _ = write!(out, "{value:0width$}");
        };
        match directive {
            'Y' => number(d.year, 4),
            'y' => number(d.year.rem_euclid(100), 2),
            'm' => number(d.month as i64, 2),
            'd' => number(d.day, 2),
            'j' => number(d.year_day, 3),
            'H' => number(hour, 2),
            'I' => number(hour12, 2),
            'M' => number(minute, 2),
            'S' => number(second, 2),
            'f' => out.push_str("000000"),
            'e' => {
                let _ = write!(out, "{:>2}", d.day);
            }
            'w' => number(d.weekday as i64, 1),
            'u' => number((d.weekday as i64 + 6) % 7 + 1, 1),
            's' => number(epoch_seconds, 1),
            'B' => out.push_str(MONTHS[d.month - 1]),
            'b' | 'h' => out.push_str(&MONTHS[d.month - 1][..3]),
            'A' => out.push_str(WEEKDAYS[d.weekday]),
            'a' => out.push_str(&WEEKDAYS[d.weekday][..3]),
            'p' => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            'Z' => out.push_str("UTC"),
            'z' => out.push_str("+0000"),
            'F' => out.push_str(&strftime("%Y-%m-%d", epoch_seconds)),
            'T' | 'X' => out.push_str(&strftime("%H:%M:%S", epoch_seconds)),
            'D' | 'x' => out.push_str(&strftime("%m/%d/%y", epoch_seconds)),
            'R' => out.push_str(&strftime("%H:%M", epoch_seconds)),
            'c' => out.push_str(&strftime("%a %b %e %H:%M:%S %Y", epoch_seconds)),
            'n' => out.push('\n'),
            't' => out.push('\t'),
            '%' => out.push('%'),
            other => {
                out.push('%');
                out.push(other);
            }
        }
    }
    out
}
