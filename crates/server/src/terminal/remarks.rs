//! Shows what does not carry over from one form to another, as a list beside the output.

use redrive_lab::dapr::Remark;

use crate::terminal::{plain, style, wrap};

const WIDTH: usize = 96;

/// Prints the remarks on standard error, so that the output itself can go into a file.
pub(crate) fn print(heading: &str, remarks: &[Remark]) {
    if !remarks.is_empty() {
        anstream::eprintln!("{}", render(heading, remarks));
    }
}

fn render(heading: &str, remarks: &[Remark]) -> String {
    let mut lines = vec![style::warning(heading)];
    for Remark { what, why } in remarks {
        let line = plain(&format!("{what}: {why}"));
        lines.push(format!("  - {}", wrap(&line, WIDTH).replace('\n', "\n    ")));
    }
    lines.join("\n")
}
