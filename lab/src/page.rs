//! Regions of a page that a program fills, between `<!-- NAME: begin -->` and `<!-- NAME: end -->`.
//!
//! Everything outside of them is written by hand and stays as it is.

/// The page with another text between the marks of a region.
pub(crate) fn fill(name: &str, page: &str, region: &str, text: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- {region}: begin -->\n"), format!("<!-- {region}: end -->\n"));
    let missing = || format!("{name} lacks its region, from {} to {}", begin.trim(), end.trim());
    let (before, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "<!-- soak: begin -->\n";
    const END: &str = "<!-- soak: end -->\n";

    #[test]
    fn only_the_region_changes() {
        let page = format!("before\n{BEGIN}old\n{END}\nafter\n");
        assert_eq!(
            fill("a.md", &page, "soak", "new\n").unwrap(),
            format!("before\n{BEGIN}new\n{END}\nafter\n")
        );
    }

    #[test]
    fn a_page_without_the_region_is_left_alone() {
        assert!(fill("a.md", "nothing", "soak", "new").unwrap_err().contains("a.md lacks"));
        assert!(fill("a.md", BEGIN, "soak", "new").is_err());
        assert!(fill("a.md", &format!("{BEGIN}{END}"), "planted", "new").is_err());
    }
}
