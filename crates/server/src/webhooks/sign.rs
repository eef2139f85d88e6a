//! `redrive hooks sign`: a signed test call.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use redrive::clock::wall_clock;
use redrive_node::secret::Secrets;
use redrive_node::webhook::WebhookSource;

use crate::cli::files::read_input;
use crate::cli::{CommandRefusal, ServerArgs};
use crate::connectors;
use crate::rules::file::open_book;
use crate::terminal::{print, shell_word};

/// Prints a curl command that calls a webhook source with a valid signature.
///
/// The secret is read as the rule book says and is not printed. Most schemes sign the time: the command is
/// valid for a few minutes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive hooks sign github --event issues --body issue.json
  redrive hooks sign billing --rules rules/billing.yaml | sh

Exit code: 0 printed, 1 no such source, or its secret is unavailable, 2 a file cannot be read.")]
pub(crate) struct HooksSignArgs {
    /// The source's name in the rule book
    pub(crate) source: String,
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// File with the body (default: {})
    #[arg(long, value_name = "FILE")]
    pub(crate) body: Option<PathBuf>,
    /// Event name, for schemes with an event header: `github`
    #[arg(long, value_name = "NAME", default_value = "ping")]
    pub(crate) event: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

const BODY_BYTES_MAX: u64 = 64 << 20;

const BODY_DEFAULT: &str = "{}";

pub(crate) async fn run(args: &HooksSignArgs) -> anyhow::Result<()> {
    let book = Arc::new(open_book(&args.rules)?);
    let source = book.sections().sources.get(&args.source);
    let hook =
        source.and_then(|source| WebhookSource::new(&args.source, &source.value)).ok_or_else(|| {
            let known: Vec<&str> = book
                .sections()
                .sources
                .iter()
                .filter(|(name, source)| WebhookSource::new(name, &source.value).is_some())
                .map(|(name, _)| name.as_str())
                .collect();
            let have = if known.is_empty() {
                "it has no webhook sources".to_owned()
            } else {
                format!("its webhook sources: {}", known.join(", "))
            };
            CommandRefusal(format!(
                "{} has no webhook source `{}`: {have}",
                args.rules.display(),
                args.source
            ))
        })?;
    let read = |path| read_input(path, BODY_BYTES_MAX, "source");
    let body = args.body.as_deref().map_or_else(|| Ok(BODY_DEFAULT.into()), read)?;
    let values = Secrets::new(&book, connectors::drivers()).get(hook.secret()).await;
    let values =
        values.map_err(|error| CommandRefusal(format!("the secret `{}`: {error}", hook.secret())))?;
    let id = format!("try-{}", uuid::Uuid::now_v7());
    let signed = values.iter().next().and_then(|secret| hook.sign(secret, &body, &id, wall_clock()));
    let signed = signed.ok_or_else(|| {
        CommandRefusal(format!("the secret `{}` is not a valid key for this scheme", hook.secret()))
    })?;
    print(&command(args, signed))
}

fn command(args: &HooksSignArgs, signed: Vec<(String, String)>) -> String {
    let mut lines = vec!["curl -i -H 'content-type: application/json'".to_owned()];
    for (name, value) in signed {
        let value = if name == "x-github-event" { args.event.clone() } else { value };
        lines.push(format!("-H {}", shell_word(&format!("{name}: {value}"))));
    }
    let ca = args.server.ca.as_deref().filter(|_| args.server.server.is_secure());
    lines.extend(ca.map(|path| format!("--cacert {}", shell_word(&path.to_string_lossy()))));
    let body = args.body.as_deref().map(|path| format!("@{}", path.display()));
    lines.push(format!("--data-binary {}", shell_word(body.as_deref().unwrap_or(BODY_DEFAULT))));
    lines.push(shell_word(&format!("{}/v1/hooks/{}", args.server.server, args.source)));
    lines.join(" \\\n  ") + "\n"
}
