//! Tables without lines: they fit a terminal, and `awk` reads them when they are piped.

use super::visible::visible;
use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, Width, presets,
};
use serde_json::Value;

/// Blanks between two columns.
const GAP: u16 = 2;
/// A text column narrower than this says nothing.
const MIN_TEXT: u16 = 10;
/// What stands for nothing, so that a column is never missing.
const NOTHING: &str = "-";

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Is to be copied, and therefore never cut: ids, times, words.
    Firm,
    /// A number.
    Number,
    /// Is cut where the terminal ends.
    Text,
}

/// A column of a table.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) kind: Kind,
    /// What it says about an item.
    pub(super) cell: fn(&Value) -> String,
}

impl Column {
    /// Never cut.
    pub(super) const fn firm(title: &'static str, cell: fn(&Value) -> String) -> Self {
        let kind = Kind::Firm;
        Self { title, kind, cell }
    }

    /// To the right.
    pub(super) const fn number(title: &'static str, cell: fn(&Value) -> String) -> Self {
        let kind = Kind::Number;
        Self { title, kind, cell }
    }

    /// Cut where it has to be.
    pub(super) const fn text(title: &'static str, cell: fn(&Value) -> String) -> Self {
        let kind = Kind::Text;
        Self { title, kind, cell }
    }
}

/// How many columns fit, from the first one on; at least one.
fn fitting(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> usize {
    let Some(width) = width else {
        return columns.len();
    };
    let mut total = 0;
    let fits = least(columns, rows).take_while(|least| {
        total += least + usize::from(GAP);
        // The last column needs no gap.
        total <= width + usize::from(GAP)
    });
    fits.count().max(1)
}

/// Which columns do not fit; nothing when all do.
pub(super) fn not_shown(
    columns: &[Column],
    rows: &[Vec<String>],
    width: Option<usize>,
) -> Option<String> {
    let hidden = columns.iter().skip(fitting(columns, rows, width));
    let hidden: Vec<&str> = hidden.map(|column| column.title).collect();
    let names = hidden.join(", ");
    (!hidden.is_empty()).then(|| format!("Not shown, as the terminal is too narrow: {names}"))
}

/// The table, without a line end at its end. With a width no line is wider: texts are cut, and columns that do not fit are
/// left out from the last one on. Columns are therefore given in the order of their importance.
pub(super) fn lay_out(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> String {
    let shown = fitting(columns, rows, width);
    let wraps = width.is_some_and(|width| least(columns, rows).next().unwrap_or(0) > width);
    let columns = &columns[..shown];
    let mut table = empty(width.map(|width| width + usize::from(GAP)));
    table.set_header(columns.iter().map(|column| Cell::new(column.title)));
    for cells in rows {
        let cells = cells.iter().take(shown);
        let mut row = Row::from(cells.map(|text| Cell::new(visible(text))));
        if !wraps {
            row.max_height(1);
        }
        table.add_row(row);
    }
    for (column, shape) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, GAP));
        if shape.kind == Kind::Number {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if width.is_some() && !wraps {
            column.set_constraint(match shape.kind {
                Kind::Text => ColumnConstraint::LowerBoundary(Width::Fixed(MIN_TEXT + GAP)),
                Kind::Firm | Kind::Number => ColumnConstraint::ContentWidth,
            });
        }
    }
    table.trim_fmt()
}

/// Names and values, one pair per line; long values go on in the next line.
pub(super) fn fields(pairs: &[(&str, String)], width: Option<usize>) -> String {
    let mut table = empty(width);
    for (name, value) in pairs {
        table.add_row([Cell::new(name), Cell::new(visible(value))]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    if let Some(names) = table.column_mut(0) {
        names.set_constraint(ColumnConstraint::ContentWidth);
    }
    table.trim_fmt()
}

fn empty(width: Option<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_truncation_indicator("…");
    match width {
        Some(width) => table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::try_from(width).unwrap_or(u16::MAX)),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    table
}

/// The least width of each column at which it still says something.
fn least(columns: &[Column], rows: &[Vec<String>]) -> impl Iterator<Item = usize> {
    columns.iter().enumerate().map(|(at, column)| {
        let cells = rows.iter().filter_map(move |row| row.get(at));
        let widest = cells.map(|text| console::measure_text_width(&visible(text)));
        let widest = widest.max().unwrap_or(0).max(column.title.len());
        match column.kind {
            Kind::Text => widest.min(usize::from(MIN_TEXT)),
            Kind::Firm | Kind::Number => widest,
        }
    })
}

/// A value as a cell: a text as it is, a missing one as `-`.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => NOTHING.to_owned(),
        Value::String(text) if text.is_empty() => NOTHING.to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

/// A mark where it is so, nothing else.
pub(super) fn mark(value: &Value) -> String {
    let set = value.as_bool().unwrap_or(false);
    if set { "yes" } else { NOTHING }.to_owned()
}

/// A time to the second.
pub(super) fn time(value: &Value) -> String {
    let shown = text(value);
    match shown.split_once('.') {
        Some((seconds, rest)) if rest.ends_with('Z') => format!("{seconds}Z"),
        _ => shown,
    }
}

/// A length of time, in the two largest units.
pub(super) fn length(seconds: &Value) -> String {
    let Some(seconds) = seconds.as_f64() else {
        return text(seconds);
    };
    let whole = seconds as u64;
    let two = |large: u64, unit: &str, rest: u64, small: &str| match rest {
        0 => format!("{large} {unit}"),
        rest => format!("{large} {unit} {rest} {small}"),
    };
    match whole {
        0..60 if seconds.fract() > 0.0 => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3_600 => two(whole / 60, "min", whole % 60, "s"),
        3_600..86_400 => two(whole / 3_600, "h", whole % 3_600 / 60, "min"),
        _ => two(whole / 86_400, "d", whole % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const COLUMNS: &[Column] = &[
        Column::firm("ID", |v| text(&v["id"])),
        Column::number("COUNT", |v| text(&v["count"])),
        Column::text("ERROR", |v| text(&v["error"])),
    ];

    fn laid_out(width: Option<usize>) -> String {
        let rows = [
            json!({"id": "msg_02mx3k8s9qv40", "count": 7, "error": "the gateway said no, and it said so at some length"}),
            json!({"id": "msg_1", "count": 12_345, "error": "\u{1b}[2J\nboo"}),
            json!({"id": "msg_2"}),
        ];
        let cells: Vec<Vec<String>> = rows
            .iter()
            .map(|row| COLUMNS.iter().map(|c| (c.cell)(row)).collect())
            .collect();
        lay_out(COLUMNS, &cells, width)
    }

    fn widest(table: &str) -> usize {
        let widths = table.lines().map(console::measure_text_width);
        widths.max().unwrap()
    }

    #[test]
    fn a_piped_table_is_plain_and_cuts_nothing() {
        assert_eq!(
            laid_out(None),
            "ID                 COUNT  ERROR\n\
             msg_02mx3k8s9qv40      7  the gateway said no, and it said so at some length\n\
             msg_1              12345  \\x1b[2J\\nboo\n\
             msg_2                  -  -"
        );
    }

    #[test]
    fn a_table_fits_its_terminal_and_ids_stay_whole() {
        let table = laid_out(Some(50));
        assert!(widest(&table) <= 50, "{table}");
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(
            table.contains("msg_02mx3k8s9qv40") && table.contains('…'),
            "{table}"
        );
        assert_eq!(laid_out(Some(200)), laid_out(None));
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out_and_a_first_one_that_does_not_wraps() {
        let narrow = laid_out(Some(30));
        assert_eq!(narrow.lines().next(), Some("ID                 COUNT"));
        assert_eq!(narrow.lines().count(), 4, "{narrow}");
        let wrapped = laid_out(Some(12));
        assert!(widest(&wrapped) <= 12, "{wrapped}");
        assert!(wrapped.lines().count() > 4, "{wrapped}");
    }

    #[test]
    fn fields_wrap_and_do_not_lose_anything() {
        let long = "word ".repeat(30);
        let table = fields(
            &[("name", long.clone()), ("b", "x\u{202e}y".into())],
            Some(40),
        );
        assert!(widest(&table) <= 40, "{table}");
        assert_eq!(table.matches("word").count(), 30);
        assert!(table.contains("x\\u{202e}y"));
    }

    #[test]
    fn times_and_lengths_are_short() {
        assert_eq!(
            time(&json!("2026-11-30T15:04:05.123Z")),
            "2026-11-30T15:04:05Z"
        );
        assert_eq!(time(&json!(null)), "-");
        for (seconds, shown) in [
            (json!(0), "0 s"),
            (json!(1.25), "1.2 s"),
            (json!(61), "1 min 1 s"),
            (json!(3_600), "1 h"),
            (json!(90_000.5), "1 d 1 h"),
            (json!(null), "-"),
        ] {
            assert_eq!(length(&seconds), shown);
        }
    }
}
