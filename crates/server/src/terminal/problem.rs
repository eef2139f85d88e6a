//! Shows a problem with its line and a caret below.

use std::path::Path;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use redrive_core::book::problem::{Problem, ProblemSeverity};
use redrive_core::mask::AddressMask;
use redrive_core::text::hide_passwords;

use crate::{connectors, logging};

/// Longer lines are not shown: the caret could not be found.
const LINE_BYTES_MAX: usize = 400;

pub(crate) fn render(problem: &Problem, path: &Path, text: &str) -> String {
    let level = match problem.severity {
        ProblemSeverity::Error => Level::ERROR,
        ProblemSeverity::Warning => Level::WARNING,
        ProblemSeverity::Info => Level::INFO,
    };
    let title = level.primary_title(&problem.message).id(problem.code);
    let path = path.display().to_string();
    let mut group = if let Some(SourceLine { source, number, caret }) = line_of(problem, text) {
        title.element(
            Snippet::source(hide_passwords(source))
                .line_start(number)
                .path(&path)
                .annotation(AnnotationKind::Primary.span(caret)),
        )
    } else {
        let place = annotate_snippets::Origin::path(&path);
        let position = problem.span.position;
        let (line, column) = (position.line as usize, position.column as usize);
        title.element(if line > 0 { place.line(line).char_column(column) } else { place })
    };
    if !problem.help.is_empty() {
        group = group.element(Level::HELP.message(&problem.help));
    }
    Renderer::styled().render(&[group])
}

/// Reports a problem of a book on standard error, or in a JSON log.
///
/// Logs have more readers than the secrets in a book's addresses may have.
pub(crate) fn say(problem: &Problem, path: &Path, text: &str) {
    let mask = AddressMask::of_text(text, connectors::table());
    let (message, help) = (mask.hide(&problem.message).into_owned(), mask.hide(&problem.help).into_owned());
    let problem = Problem { message, help, ..problem.clone() };
    logging::say(format_args!("{}\n", render(&problem, path, &mask.hide_in_book(text))), || {
        let Problem { severity: _, code, span, message, help } = &problem;
        let (line, column) = (span.position.line, span.position.column);
        tracing::error!(code, line, column, problem = message, help, "the rule book has a problem");
    });
}

struct SourceLine<'a> {
    source: &'a str,
    number: usize,
    caret: std::ops::Range<usize>,
}

fn line_of<'a>(problem: &Problem, text: &'a str) -> Option<SourceLine<'a>> {
    let number = problem.span.position.line as usize;
    // A syntax error may be just behind the end of the text.
    let start = (problem.span.start as usize).min(text.len());
    if number == 0 || !text.is_char_boundary(start) {
        return None;
    }
    let first = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let last = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
    // Without the byte order mark and the carriage return.
    let first = if text[first..].starts_with('\u{feff}') { first + '\u{feff}'.len_utf8() } else { first };
    let last = if text[..last].ends_with('\r') { last - 1 } else { last };
    let start = start.clamp(first, last.max(first));
    let source = &text[first..last.max(first)];
    if source.len() > LINE_BYTES_MAX {
        return None;
    }
    let end = (problem.span.end as usize).clamp(start, last.max(start));
    let end = if text.is_char_boundary(end) { end } else { last };
    Some(SourceLine { source, number, caret: start - first..end - first })
}
