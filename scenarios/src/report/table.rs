//! Tables of text.

/// Alignment of a column.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) enum Align {
    Left,
    Right,
}

/// Rows under a header, in columns as wide as their widest cell.
pub(super) struct Table {
    header: Vec<String>,
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            header: columns.iter().map(|(name, _)| (*name).to_owned()).collect(),
            align: columns.iter().map(|(_, align)| *align).collect(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.header.len());
        self.rows.push(cells);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Leaves out columns that are empty in every row.
    pub(super) fn without_empty_columns(mut self) -> Self {
        for column in (0..self.header.len()).rev() {
            if self.rows.iter().all(|row| row[column].is_empty()) {
                self.header.remove(column);
                self.align.remove(column);
                self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
            }
        }
        self
    }

    /// The table, each line with `indent` spaces in front and none behind.
    pub(super) fn render(&self, indent: usize) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| &row[column]).chain([&self.header[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let mut out = String::new();
        for row in std::iter::once(&self.header).chain(&self.rows) {
            let mut line = " ".repeat(indent);
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                match self.align[column] {
                    Align::Left => line.extend([cell.as_str(), &pad]),
                    Align::Right => line.extend([pad.as_str(), cell]),
                }
                line.push_str("  ");
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_empty_ones_go() {
        let columns = [("name", Align::Left), ("gone", Align::Left), ("n", Align::Right)];
        let mut table = Table::new(&columns);
        table.row(vec!["µs".into(), String::new(), "1".into()]);
        table.row(vec!["longer".into(), String::new(), "100".into()]);
        let text = table.without_empty_columns().render(2);
        assert_eq!(text, "  name      n\n  µs        1\n  longer  100\n");
    }
}
