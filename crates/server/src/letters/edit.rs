//! `redrive dlq edit`: resends a dead letter with new data, from an argument, a file or an editor.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use redrive_core::letters::envelope::Envelope;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::files::read_input;
use crate::cli::{CommandRefusal, Format, ServerArgs};
use crate::client::ClientRequest;
use crate::client::address::segment;
use crate::deliveries::text::short_id;
use crate::events::send::DATA_BYTES_MAX;
use crate::letters::json::EditResponse;
use crate::terminal::{next_steps, plain, print_as, style};

/// Resends a dead letter with new data, as a new event in its place.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --data and --file, $VISUAL or $EDITOR opens the data.

Examples:
  redrive dlq edit 3c6ef372
  redrive dlq edit 3c6ef372 --data '{\"total\": 12}' --note 'the total was missing'
  redrive dlq edit 3c6ef372 --file fixed.json

Exit code: 0 sent, 1 refused or unchanged, 2 wrong use, 3 no server.")]
pub(crate) struct DlqEditArgs {
    /// The letter's id, id prefix, or original id
    #[arg(value_name = "LETTER")]
    pub(crate) letter: String,
    /// The new data
    #[arg(long, conflicts_with = "file")]
    pub(crate) data: Option<String>,
    /// Reads the new data from a file; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Content type of the new data (default: unchanged)
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// The reason, for the audit log
    #[arg(long)]
    pub(crate) note: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) async fn run(args: &DlqEditArgs) -> anyhow::Result<()> {
    let mut client = args.server.client()?;
    let path = |name: &str| format!("/v1/dead-letters/{}", segment(name));
    let (letter, id): (Envelope, _) =
        client.named_json(&ClientRequest::get(path(&args.letter) + "?form=envelope")).await?;
    let old = LetterPayload::of(&letter.original_message)?;
    let new = new_data(args, &old)?;
    let body = body(args, &old, &new)?;
    // By the canonical id, which identifies a repeated edit after a lost answer.
    let path = path(id.as_deref().unwrap_or(&args.letter));
    let ask = ClientRequest::post(format!("{path}/edit"), "application/json", body);
    let edited: EditResponse = client.json(&ask).await?;
    print_as(args.format, &edited, || ending(&edited))
}

struct LetterPayload {
    /// For editing.
    text: Vec<u8>,
    is_json: bool,
}

impl LetterPayload {
    fn of(event: &Value) -> anyhow::Result<Self> {
        let content_type = event["datacontenttype"].as_str();
        let is_json = content_type.is_none_or(|text| text.contains("json"));
        let text = match (event.get("data"), event["data_base64"].as_str()) {
            (Some(Value::String(text)), _) if !is_json => text.clone().into_bytes(),
            (Some(data), _) => (serde_json::to_string_pretty(data)? + "\n").into_bytes(),
            (None, Some(base64)) => STANDARD.decode(base64).context("invalid base64 from the server")?,
            (None, None) => Vec::new(),
        };
        Ok(Self { text, is_json })
    }
}

fn new_data(args: &DlqEditArgs, old: &LetterPayload) -> anyhow::Result<Vec<u8>> {
    match (&args.data, &args.file) {
        (Some(data), _) => Ok(data.clone().into_bytes()),
        (None, Some(path)) => read_input(path, DATA_BYTES_MAX, "server"),
        (None, None) => {
            let new = in_editor(old)?;
            if new == old.text {
                return Err(CommandRefusal("no change: the letter stays as it is".to_owned()).into());
            }
            Ok(new)
        }
    }
}

fn in_editor(old: &LetterPayload) -> anyhow::Result<Vec<u8>> {
    let editor = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
    let Some(editor) = editor.into_iter().find(|editor| !editor.trim().is_empty()) else {
        let text = "no editor: set $EDITOR, or pass the new data with --data or --file";
        return Err(CommandRefusal(text.to_owned()).into());
    };
    let draft = LetterDraft::new(old)?;
    // `$EDITOR` may contain arguments, so a shell parses it.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "redrive"])
        .arg(&draft.path)
        .status()
        .with_context(|| format!("cannot start {editor}"))?;
    if !status.success() {
        return Err(CommandRefusal(format!("the editor exited with {status}: nothing was sent")).into());
    }
    std::fs::read(&draft.path).with_context(|| format!("cannot read {}", draft.path.display()))
}

/// A private temporary file, removed on drop.
struct LetterDraft {
    path: PathBuf,
}

impl LetterDraft {
    fn new(old: &LetterPayload) -> anyhow::Result<Self> {
        let ending = if old.is_json { "json" } else { "txt" };
        let name = format!("redrive-letter-{}.{ending}", uuid::Uuid::now_v7());
        let path = std::env::temp_dir().join(name);
        let shown = path.display().to_string();
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let mut file = file.with_context(|| format!("cannot create {shown}"))?;
        let draft = Self { path };
        file.write_all(&old.text).with_context(|| format!("cannot write {shown}"))?;
        Ok(draft)
    }
}

impl Drop for LetterDraft {
    fn drop(&mut self) {
        // The editor may have moved it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// JSON data as typed, anything else as base64.
#[derive(Default, Serialize)]
struct LetterEdit<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
}

fn body(args: &DlqEditArgs, old: &LetterPayload, new: &[u8]) -> anyhow::Result<Vec<u8>> {
    let is_json = args.content_type.as_deref().map_or(old.is_json, |text| text.contains("json"));
    let mut body = LetterEdit {
        content_type: args.content_type.as_deref(),
        note: args.note.as_deref(),
        ..LetterEdit::default()
    };
    if !is_json {
        body.data_base64 = Some(STANDARD.encode(new));
        return Ok(serde_json::to_vec(&body)?);
    }
    let raw: &RawValue = serde_json::from_slice(new).map_err(|error| {
        let shown = plain(String::from_utf8_lossy(new).lines().next().unwrap_or_default());
        CommandRefusal(format!(
            "new data is not valid JSON: {error}\n  received: {shown}\n  set its type with --content-type"
        ))
    })?;
    body.data = Some(raw);
    Ok(serde_json::to_vec(&body)?)
}

fn ending(edited: &EditResponse) -> String {
    let mut out = format!(
        "{} replaced letter {} by event {}\n",
        style::good("✓"),
        style::bold(short_id(&edited.supersedes)),
        style::bold(plain(&edited.event_id))
    );
    let show = format!("redrive show {}", plain(&edited.receipt));
    out.push_str(&next_steps(&[(show, "shows its deliveries")]));
    out
}
