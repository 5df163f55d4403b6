//! Standard output is data, standard error is talk.

use super::exit::Outcome;
use super::json;
use super::profile::variable;
use super::table::Column;
use super::visible::visible;
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people; fits the terminal (or COLUMNS), and is plain when piped
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One JSON document per line; lists keep to --limit unless there is --all
    Jsonl,
    /// Names or ids alone, one per line
    Name,
}

/// The option that says how.
#[derive(Args, Debug, Default)]
pub(super) struct OutputArgs {
    /// How the data is printed
    #[arg(
        short,
        long = "output",
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        help_heading = "Output"
    )]
    pub(super) output: Format,
}

/// Prints data.
pub(super) struct Out {
    pub(super) format: Format,
    /// Columns of the terminal; `None` when it is none.
    pub(super) width: Option<usize>,
    to: BufWriter<Stdout>,
}

impl Out {
    /// To standard output.
    pub(super) fn new(format: Format) -> Self {
        let stdout = io::stdout();
        let width = stdout
            .is_terminal()
            .then(|| columns(&console::Term::stdout()));
        let to = BufWriter::new(stdout);
        Self { format, width, to }
    }

    /// Whether nothing is drawn over while data is on its way: it goes elsewhere, or comes at the end.
    pub(super) fn waits(&self) -> bool {
        self.width.is_none() || self.format == Format::Table
    }

    /// A line.
    pub(super) fn line(&mut self, text: &str) -> Outcome<()> {
        Ok(writeln!(self.to, "{text}")?)
    }

    /// An element of a list of JSON documents; `before` is how many there were before it.
    pub(super) fn element(&mut self, text: &str, before: usize) -> Outcome<()> {
        let text = json::compact(text);
        if self.format == Format::Jsonl {
            return self.line(&text);
        }
        let mark = if before == 0 { "[" } else { "," };
        Ok(write!(self.to, "{mark}\n{text}")?)
    }

    /// The end of a list of so many JSON documents.
    pub(super) fn end_of_list(&mut self, count: usize) -> Outcome<()> {
        match self.format {
            Format::Json if count == 0 => self.line("[]"),
            Format::Json => self.line("\n]"),
            _ => Ok(()),
        }
    }

    /// One thing: `text` is its JSON, `name` the member that names it, `table` how people read it.
    pub(super) fn one(
        &mut self,
        text: &str,
        name: &str,
        table: impl FnOnce(&Value, Option<usize>) -> String,
    ) -> Outcome<()> {
        let shown = match self.format {
            Format::Json => json::pretty(text),
            Format::Jsonl => json::compact(text),
            Format::Name => super::table::text(&json::value(text)[name]),
            Format::Table => table(&json::value(text), self.width).trim_end().to_owned(),
        };
        if self.format == Format::Name {
            self.line(&visible(&shown))
        } else {
            self.line(&shown)
        }
    }

    /// Several things, one after another. [`Rows::end`] has to be called.
    pub(super) fn rows(&mut self, name: &'static str, columns: &'static [Column]) -> Rows<'_> {
        Rows {
            out: self,
            name,
            columns,
            cells: Vec::new(),
            count: 0,
        }
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) -> Outcome<()> {
        Ok(self.to.flush()?)
    }
}

/// A list on its way out. All formats but the table hold one item at a time.
pub(super) struct Rows<'a> {
    out: &'a mut Out,
    name: &'static str,
    columns: &'static [Column],
    cells: Vec<Vec<String>>,
    /// Items so far.
    pub(super) count: usize,
}

impl Rows<'_> {
    /// The next one, as JSON.
    pub(super) fn push(&mut self, text: &str) -> Outcome<()> {
        match self.out.format {
            Format::Table => {
                let row = json::value(text);
                let cells = self.columns.iter().map(|column| (column.cell)(&row));
                self.cells.push(cells.collect());
            }
            Format::Json | Format::Jsonl => self.out.element(text, self.count)?,
            Format::Name => {
                let name = super::table::text(&json::value(text)[self.name]);
                self.out.line(&visible(&name))?;
            }
        }
        self.count += 1;
        Ok(())
    }

    /// That was all. `none` is said when there was nothing.
    pub(super) fn end(self, none: &str) -> Outcome<()> {
        match self.out.format {
            Format::Json => self.out.end_of_list(self.count)?,
            Format::Table if self.count > 0 => {
                let width = self.out.width;
                let text = super::table::lay_out(self.columns, &self.cells, width);
                self.out.line(&text)?;
                if let Some(note) = super::table::not_shown(self.columns, &self.cells, width) {
                    self.out.flush()?;
                    talk(&note);
                }
            }
            _ => {}
        }
        if self.count == 0 {
            talk(none);
        }
        self.out.flush()
    }
}

/// Says something to the person, on standard error. What a terminal would act on is written out, whoever it came from.
pub(in crate::cli) fn talk(text: &str) {
    let mut to = io::stderr().lock();
    for line in text.split('\n') {
        let _ = writeln!(to, "{}", visible(line));
    }
}

/// The width of a terminal: `COLUMNS` where that is set, else what the terminal says.
pub(super) fn columns(terminal: &console::Term) -> usize {
    let told = variable("COLUMNS").and_then(|text| text.parse().ok());
    let told = told.filter(|columns| *columns > 0);
    told.unwrap_or_else(|| {
        let size = terminal.size_checked();
        size.map_or(80, |(_, columns)| usize::from(columns))
    })
}
