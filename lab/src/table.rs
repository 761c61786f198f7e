//! A small table, for a terminal and for a page.

/// Its header, and rows of as many cells. The first cell of a row is a name, the others are
/// numbers.
pub(crate) struct Table {
    pub(crate) header: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn text(&self) -> String {
        let mut widths: Vec<usize> = self.header.iter().map(|cell| cell.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let header: Vec<String> = self.header.iter().map(|cell| cell.to_uppercase()).collect();
        let mut text = String::new();
        for row in std::iter::once(&header).chain(&self.rows) {
            for (at, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                // Names stand left, numbers right.
                text.push_str(&if at == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                });
            }
            text.push('\n');
        }
        text
    }

    pub(crate) fn markdown(&self) -> String {
        let rule = "|---:".repeat(self.header.len().saturating_sub(1));
        let rows: String =
            self.rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
        format!("| {} |\n|---{rule}|\n{rows}", self.header.join(" | "))
    }
}
