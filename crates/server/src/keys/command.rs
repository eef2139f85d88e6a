//! `redrive keys`: creates, lists and revokes API keys, on a server or in a data folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use redrive::clock::wall_clock;
use redrive_core::access::{AccessScope, Role};
use redrive_core::text::{Rate, parse_duration, parse_rate, show_duration};
use redrive_node::store::access_store::{AuditActor, AuditEntry, KEYS_MAX, KeyRecord};
use redrive_node::store::{self, StateChange, StoreError, WriteBatch};
use serde_json::json;

use crate::cli::{CommandRefusal, Format, ServerArgs, one_of};
use crate::client::ClientRequest;
use crate::client::address::segment;
use crate::keys::json::{CreateKeyResponse, KeyJson, KeyRevocation, KeysResponse};
use crate::keys::{self, CreatedKey, KeySpec, text};
use crate::terminal::{plain, print, print_as, style};

/// Creates, lists and revokes API keys.
#[derive(Debug, Args)]
#[command(after_help = "\
The first key, before a server is reachable for others:
  redrive keys create ops --role admin --data redrive-data

Clients send a key as `Authorization: Bearer KEY`. Commands read it from REDRIVE_KEY or \
                        --key-file. The first key turns on authentication for everyone, event senders included.")]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) what: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    Create(Box<KeysCreateArgs>),
    List(KeysListArgs),
    Revoke(KeysRevokeArgs),
}

/// Creates a key and shows it once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive keys create ops --role admin --data redrive-data
  redrive keys create shop --role ingest --source /shop --rate 100/s
  redrive keys create billing-team --role operator --service billing --expires 90d
  redrive keys create ci --role viewer --quiet > key

Exit code: 0 created, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct KeysCreateArgs {
    /// The key's name, for lists and the audit log
    pub(crate) name: String,
    /// The role of the key
    #[arg(long, value_parser = one_of(&ROLES))]
    pub(crate) role: Role,
    /// Only events of this source; repeatable
    #[arg(long = "source", value_name = "SOURCE")]
    pub(crate) sources: Vec<String>,
    /// Only this service; repeatable
    #[arg(long = "service", value_name = "SERVICE")]
    pub(crate) services: Vec<String>,
    /// Maximum request rate; default: the rule book's
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) rate: Option<Rate>,
    /// Lifetime; default: until revoked
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) expires: Option<Duration>,
    /// Prints the key only
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) at: KeysAtArgs,
}

/// Lists keys, oldest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive keys list
  redrive keys list --data redrive-data --format json

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct KeysListArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) at: KeysAtArgs,
}

/// Revokes a key at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive keys revoke rk_1a2b3c4d --note 'it was in a log'

Exit code: 0 revoked, 1 not found, 2 wrong use, 3 no server.")]
pub(crate) struct KeysRevokeArgs {
    /// The key's id, as `redrive keys list` shows it: the first part of the key
    pub(crate) id: String,
    /// The reason, for the audit log
    #[arg(long)]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) at: KeysAtArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct KeysAtArgs {
    /// Changes this data folder directly, without a server; except for `list`, no server may use it
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

const ROLES: [(&str, &str, Role); 4] = [
    ("ingest", "Send events only", Role::Ingest),
    ("viewer", "Read only", Role::Viewer),
    ("operator", "Read, send events, operate services, dead letters and replays", Role::Operator),
    ("admin", "Everything, including keys", Role::Admin),
];

pub(crate) async fn run(args: &KeysArgs) -> anyhow::Result<()> {
    match &args.what {
        KeysCommand::Create(args) => create(args).await,
        KeysCommand::List(args) => list(args).await,
        KeysCommand::Revoke(args) => revoke(args).await,
    }
}

async fn create(args: &KeysCreateArgs) -> anyhow::Result<()> {
    let made = if let Some(folder) = &args.at.data {
        create_there(folder, args)?
    } else {
        let wanted = json!({
            "name": args.name,
            "role": args.role,
            "sources": args.sources,
            "services": args.services,
            "rate": args.rate.map(|rate| rate.to_string()),
            "expires": args.expires.map(show_duration),
        });
        // No retries: they could create a second key.
        args.at
            .server
            .client()?
            .json::<CreateKeyResponse>(&ClientRequest::json("/v1/keys", &wanted).once())
            .await?
    };
    if args.quiet { print(&format!("{}\n", made.key)) } else { print(&text::made(&made)) }
}

fn create_there(folder: &Path, args: &KeysCreateArgs) -> anyhow::Result<CreateKeyResponse> {
    let spec = KeySpec {
        name: args.name.clone(),
        role: args.role,
        scope: AccessScope { sources: args.sources.clone(), services: args.services.clone() },
        rate: args.rate,
        lives: args.expires,
    };
    let known = match kept(folder) {
        Ok(known) => known,
        // The first key creates the folder.
        Err(StoreError::NotOpened { .. }) => Vec::new(),
        Err(error) => return Err(CommandRefusal::of(error).into()),
    };
    if known.is_empty() && spec.role != Role::Admin {
        return Err(CommandRefusal(format!("the role {}", keys::FIRST_IS_ADMIN)).into());
    }
    if known.len() >= KEYS_MAX {
        return Err(CommandRefusal(format!("limit of {KEYS_MAX} keys reached, revoked ones included")).into());
    }
    let is_taken = |id: &str| known.iter().any(|record| record.id == id);
    let CreatedKey { text, record } = keys::make(spec, is_taken, wall_clock()).map_err(CommandRefusal::of)?;
    let shown = KeyJson::new(&record, None, wall_clock());
    put(folder, "key-create", record, None)?;
    Ok(CreateKeyResponse { key: text, shown })
}

async fn list(args: &KeysListArgs) -> anyhow::Result<()> {
    let (found, now) = match &args.at.data {
        Some(folder) => {
            let now = wall_clock();
            let records = kept(folder).map_err(CommandRefusal::of)?;
            let keys = records.iter().map(|record| KeyJson::new(record, None, now)).collect();
            (KeysResponse { keys }, now)
        }
        None => args.at.server.client()?.timed_json(&ClientRequest::get("/v1/keys")).await?,
    };
    print_as(args.format, &found.keys, || text::list(&found.keys, now))
}

async fn revoke(args: &KeysRevokeArgs) -> anyhow::Result<()> {
    let id = keys::id_within(&args.id);
    let KeyRevocation { shown, note } = if let Some(folder) = &args.at.data {
        revoke_there(folder, id, args.note.as_ref())?
    } else {
        let ask =
            ClientRequest::json(format!("/v1/keys/{}/revoke", segment(id)), &json!({ "note": args.note }));
        args.at.server.client()?.json(&ask).await?
    };
    print(&text::revoked(&shown))?;
    if let Some(note) = note {
        anstream::eprintln!("{}: {}", style::warning("warning"), plain(&note));
    }
    Ok(())
}

fn revoke_there(folder: &Path, id: &str, note: Option<&String>) -> anyhow::Result<KeyRevocation> {
    let known = kept(folder).map_err(CommandRefusal::of)?;
    let Some(mut record) = known.iter().find(|record| record.id == id).cloned() else {
        return Err(
            CommandRefusal(format!("no key `{}`: `redrive keys list` shows all keys", plain(id))).into()
        );
    };
    if record.revoked_at.is_none() {
        record.revoked_at = Some(wall_clock());
        put(folder, "key-revoke", record.clone(), note.cloned())?;
    }
    let note = keys::note_on_end(&record, known.iter(), wall_clock()).map(ToOwned::to_owned);
    Ok(KeyRevocation { shown: KeyJson::new(&record, None, wall_clock()), note })
}

fn kept(folder: &Path) -> Result<Vec<KeyRecord>, StoreError> {
    store::open_reader(folder)?.keys()
}

/// Writes the key and its audit record together.
fn put(folder: &Path, act: &'static str, record: KeyRecord, note: Option<String>) -> anyhow::Result<()> {
    let by = AuditActor::named("the owner of the data folder");
    let deed = AuditEntry { act, what: keys::describe(&record), by, note };
    let notes = vec![StateChange::Key(Box::new(record)), StateChange::Audit(Box::new(deed))];
    let batch = WriteBatch { changes: notes, ..WriteBatch::default() };
    store::write_once(folder, &batch, wall_clock()).map_err(|error| match error {
        // A server on another folder would not know these keys.
        StoreError::InUse { path, owner } => {
            let shown = path.display();
            let cure =
                "use the server instead, without --data and with an admin key in REDRIVE_KEY, or stop it first";
            CommandRefusal(format!("a server is using {shown} (process {owner}): {cure}"))
        }
        other => CommandRefusal::of(other),
    })?;
    Ok(())
}
