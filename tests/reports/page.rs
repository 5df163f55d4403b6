//! docs/REPORTS.md.
