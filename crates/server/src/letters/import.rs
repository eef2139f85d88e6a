//! `redrive dlq import`: imports dead letters from a file.
//!
//! Invariant: every line is checked before anything is sent.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use redrive_core::text::{counted, show_count};
use redrive_node::letters::import;

use crate::cli::{CommandRefusal, Format, ServerArgs};
use crate::client::{Client, ClientRequest};
use crate::letters::bulk::IMPORT_LINES_MAX;
use crate::letters::json::ImportResponse;
use crate::terminal::{next_steps, plain, print_as, style};

/// Imports dead letters, one JSON object per line.
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is a Redrive envelope, a letter of Redis streams, or a plain object such as
  {\"service\": \"billing\", \"type\": \"orders.placed\", \"data\": {\"order\": 42}}
docs/dead-letters.md lists all keys. The whole file is checked first; a repeated import \
                        changes nothing.

Examples:
  redrive dlq import letters.jsonl
  redis-cli --raw XRANGE work:dlq - + | ./to-lines | redrive dlq import -

Exit code: 0 imported, 1 invalid lines, 2 a file cannot be read, 3 no server.")]
pub(crate) struct DlqImportArgs {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Per request; a larger letter is sent alone.
const BYTES_MAX: usize = 8 << 20;

/// Standard input can be read only once, so it is kept in memory.
const INPUT_BYTES_MAX: u64 = 1 << 30;

const PROBLEMS_MAX: usize = 20;

/// Lines that can be read twice.
enum LetterInput {
    File(PathBuf),
    Text(Vec<u8>),
}

impl LetterInput {
    fn new(path: &Path) -> anyhow::Result<Self> {
        if path.as_os_str() != "-" {
            return Ok(Self::File(path.to_owned()));
        }
        let mut bytes = Vec::new();
        let mut input = std::io::stdin().lock().take(INPUT_BYTES_MAX + 1);
        input.read_to_end(&mut bytes).context("cannot read standard input")?;
        if bytes.len() as u64 > INPUT_BYTES_MAX {
            return Err(CommandRefusal("input exceeds 1 GiB: write it to a file first".to_owned()).into());
        }
        Ok(Self::Text(bytes))
    }

    /// Non-empty lines with their numbers.
    fn lines(&self) -> anyhow::Result<impl Iterator<Item = anyhow::Result<(usize, String)>>> {
        let reader: Box<dyn BufRead> = match self {
            Self::File(path) => {
                let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
                Box::new(BufReader::new(file))
            }
            Self::Text(bytes) => Box::new(Cursor::new(bytes.clone())),
        };
        let numbered = reader.lines().enumerate().map(|(place, line)| {
            let line = line.with_context(|| format!("cannot read line {}", place + 1))?;
            Ok((place + 1, line))
        });
        Ok(numbered.filter(|line| !matches!(line, Ok((_, text)) if text.trim().is_empty())))
    }
}

pub(crate) async fn run(args: &DlqImportArgs) -> anyhow::Result<()> {
    let source = LetterInput::new(&args.file)?;
    check(&source)?;
    let mut client = args.server.client()?;
    let mut sum = ImportResponse::default();
    let (mut body, mut lines) = (String::new(), 0);
    for line in source.lines()? {
        let (_, line) = line?;
        if lines == IMPORT_LINES_MAX || (lines > 0 && body.len() + line.len() > BYTES_MAX) {
            send(&mut client, std::mem::take(&mut body), &mut sum).await?;
            lines = 0;
        }
        body.push_str(&line);
        body.push('\n');
        lines += 1;
    }
    if lines > 0 {
        send(&mut client, body, &mut sum).await?;
    }
    print_as(args.format, &sum, || ending(sum))
}

fn check(source: &LetterInput) -> anyhow::Result<()> {
    let mut problems = Vec::new();
    let mut count = 0_u64;
    for line in source.lines()? {
        let (number, line) = line?;
        if let Err(problem) = import::read(&line) {
            count += 1;
            if problems.len() < PROBLEMS_MAX {
                problems.push(format!("\n  line {number} {}", plain(&problem)));
            }
        }
    }
    if count == 0 {
        return Ok(());
    }
    let rest = match count - problems.len() as u64 {
        0 => String::new(),
        more => format!("\n  … and {}", counted(more, "more line")),
    };
    let are = if count == 1 { "is not a valid dead letter" } else { "are not valid dead letters" };
    let text = format!("{} {are}: nothing was imported{}{rest}", counted(count, "line"), problems.concat());
    Err(CommandRefusal(text).into())
}

async fn send(client: &mut Client, body: String, sum: &mut ImportResponse) -> anyhow::Result<()> {
    let ask = ClientRequest::post("/v1/dead-letters/import", "application/x-ndjson", body);
    let part: ImportResponse = client.json(&ask).await?;
    sum.imported += part.imported;
    sum.known += part.known;
    Ok(())
}

fn ending(sum: ImportResponse) -> String {
    let known = match sum.known {
        0 => String::new(),
        count => format!(", {} existed already", show_count(count)),
    };
    let mut out = format!("{} {} imported{known}\n", style::good("✓"), counted(sum.imported, "dead letter"));
    if sum.imported > 0 {
        out.push_str(&next_steps(&[("redrive dlq groups".to_owned(), "shows their causes")]));
    }
    out
}
