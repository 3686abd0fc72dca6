//! A table, as Markdown that can be read as it is.

/// Said where a number would stand that was not measured.
pub(crate) const NOT_MEASURED: &str = "not measured";

/// A table; each row has a cell for each head.
pub(crate) struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        Self { heads: heads.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// Adds a row. A cell cannot be empty, because a reader would not know why.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert!(N == self.heads.len() && cells.iter().all(|cell| !cell.is_empty()), "a cell is missing: {cells:?}");
        self.rows.push(cells.map(|cell| cell.replace('|', "/")).to_vec());
    }

    /// The first column to the left, numbers to the right.
    pub(crate) fn markdown(&self) -> String {
        let lines = || std::iter::once(&self.heads).chain(&self.rows);
        let widths: Vec<_> = (0..self.heads.len())
            .map(|column| lines().map(|line| line[column].chars().count()).max().unwrap_or_default().max(3))
            .collect();
        let is_right: Vec<_> = (0..self.heads.len()).map(|column| column > 0 && self.is_numeric(column)).collect();
        let mut rendered = lines().map(|line| {
            let cells = line.iter().zip(&widths).zip(&is_right).map(|((cell, width), is_right)| match is_right {
                true => format!("| {cell:>width$} "),
                false => format!("| {cell:<width$} "),
            });
            cells.collect::<String>() + "|\n"
        });
        let heads = rendered.next().unwrap_or_default();
        let rule = widths.iter().zip(&is_right).map(|(width, is_right)| match is_right {
            true => format!("| {}: ", "-".repeat(width - 1)),
            false => format!("| {} ", "-".repeat(*width)),
        });
        heads + &rule.collect::<String>() + "|\n" + &rendered.collect::<String>()
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().map(|row| row[column].as_str());
        cells.all(|cell| cell == "-" || cell == NOT_MEASURED || cell.starts_with(|first: char| first.is_ascii_digit()))
    }
}

/// A whole number with commas: `17,800`.
pub(crate) fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share or a time, with two digits.
pub(crate) fn fine(number: f64) -> String {
    format!("{number:.2}")
}

/// A number that may be missing.
pub(crate) fn or_dash(number: Option<f64>, write: fn(f64) -> String) -> String {
    number.map_or("-".into(), write)
}
