//! Standard output is data, standard error is talk.

use super::exit::Outcome;
use super::json;
use super::table::Column;
use super::visible::visible;
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people; fits the terminal, and is plain when piped
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One JSON document per line
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
        let width = stdout.is_terminal().then(|| {
            let size = console::Term::stdout().size_checked();
            size.map_or(80, |(_, columns)| usize::from(columns))
        });
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
            Format::Json => {
                let before = if self.count == 0 { "[" } else { "," };
                write!(self.out.to, "{before}\n{}", json::compact(text))?;
            }
            Format::Jsonl => self.out.line(&json::compact(text))?,
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
            Format::Json if self.count == 0 => self.out.line("[]")?,
            Format::Json => self.out.line("\n]")?,
            Format::Table if self.count > 0 => {
                let width = self.out.width;
                let text = super::table::lay_out(self.columns, &self.cells, width);
                self.out.line(&text)?;
                let fitting = super::table::fitting(self.columns, &self.cells, width);
                let hidden = self.columns.iter().skip(fitting);
                let hidden: Vec<&str> = hidden.map(|column| column.title).collect();
                if !hidden.is_empty() {
                    self.out.flush()?;
                    talk(&format!(
                        "Not shown, as the terminal is too narrow: {}",
                        hidden.join(", ")
                    ));
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

/// Says something to the person, on standard error.
pub(super) fn talk(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
