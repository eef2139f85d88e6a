//! `redrive keys`: made, listed and revoked, by a server or on a data folder that none runs on.

use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use redrive_core::access::{Role, Scope};
use redrive_core::text::show_duration;
use redrive_core::time::Timestamp;
use redrive_node::store::door::{By, Deed, KEYS_MAX, KeyRecord};
use redrive_node::store::{self, Batch, Note, StoreError};
use serde_json::{Map, Value, json};

use super::{Refused, print, print_json, wait_for};
use crate::api::shape::keys::{KeyEnded, KeyMade, KeyShown, KeysFound};
use crate::cli::{Format, Keys, KeysArgs, KeysCreateArgs, KeysListArgs, KeysRevokeArgs};
use crate::client::{Ask, segment};
use crate::keys::{self, KeyWish, Made};
use crate::show::keys as show;
use crate::show::{plain, style};

pub(super) fn run(args: &KeysArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        Keys::Create(args) => create(args)?,
        Keys::List(args) => list(args)?,
        Keys::Revoke(args) => revoke(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn create(args: &KeysCreateArgs) -> anyhow::Result<()> {
    let made = match &args.at.data {
        Some(folder) => create_there(folder, args)?,
        None => wait_for(async {
            let body = serde_json::to_vec(&wanted(args)).expect("texts can be written as JSON");
            // A key that is made twice is one too many.
            let ask = Ask::post("/v1/keys", "application/json", body).once();
            Ok(args.at.server.client()?.json::<KeyMade>(&ask).await?)
        })?,
    };
    if args.quiet { print(&format!("{}\n", made.key)) } else { print(&show::made(&made)) }
}

/// What the API is asked for.
fn wanted(args: &KeysCreateArgs) -> Map<String, Value> {
    let mut wish = Map::new();
    wish.insert("name".to_owned(), json!(args.name));
    wish.insert("role".to_owned(), json!(Role::from(args.role)));
    let lists = [("sources", &args.sources), ("services", &args.services)];
    wish.extend(
        lists
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(name, names)| (name.to_owned(), json!(names))),
    );
    wish.extend(args.rate.map(|rate| ("rate".to_owned(), json!(rate.to_string()))));
    wish.extend(args.expires.map(|lives| ("expires".to_owned(), json!(show_duration(lives)))));
    wish
}

fn create_there(folder: &Path, args: &KeysCreateArgs) -> anyhow::Result<KeyMade> {
    let wish = KeyWish {
        name: args.name.clone(),
        role: args.role.into(),
        scope: Scope { sources: args.sources.clone(), services: args.services.clone() },
        rate: args.rate,
        lives: args.expires,
    };
    let known = match kept(folder) {
        Ok(known) => known,
        // The folder is made with its first key.
        Err(StoreError::NotOpened { .. }) => Vec::new(),
        Err(error) => return Err(refused(&error)),
    };
    if known.is_empty() && wish.role != Role::Admin {
        return Err(Refused(format!("the role {}", keys::FIRST_IS_ADMIN)).into());
    }
    if known.len() >= KEYS_MAX {
        return Err(Refused(format!("there are {KEYS_MAX} keys already, revoked ones included")).into());
    }
    let is_taken = |id: &str| known.iter().any(|record| record.id == id);
    let Made { text, record } = keys::make(wish, is_taken, now()).map_err(|why| Refused(why.to_string()))?;
    let shown = KeyShown::new(&record, None, now());
    put(folder, "key-create", record, None)?;
    Ok(KeyMade { key: text, shown })
}

fn list(args: &KeysListArgs) -> anyhow::Result<()> {
    let (found, now) = match &args.at.data {
        Some(folder) => {
            let now = now();
            let records = kept(folder).map_err(|error| refused(&error))?;
            let keys = records.iter().map(|record| KeyShown::new(record, None, now)).collect();
            (KeysFound { keys }, now)
        }
        None => wait_for(async {
            Ok(args.at.server.client()?.timed_json::<KeysFound>(&Ask::get("/v1/keys")).await?)
        })?,
    };
    match args.format {
        Format::Json => print_json(&found.keys),
        Format::Text => print(&show::list(&found.keys, now)),
    }
}

fn revoke(args: &KeysRevokeArgs) -> anyhow::Result<()> {
    let id = keys::id_within(&args.id);
    let KeyEnded { shown, note } = match &args.at.data {
        Some(folder) => revoke_there(folder, id, args.note.as_ref())?,
        None => wait_for(async {
            let path = format!("/v1/keys/{}/revoke", segment(id));
            let body = args.note.as_ref().map_or(json!({}), |note| json!({ "note": note }));
            let ask = Ask::post(path, "application/json", body.to_string());
            Ok(args.at.server.client()?.json::<KeyEnded>(&ask).await?)
        })?,
    };
    print(&show::revoked(&shown))?;
    if let Some(note) = note {
        anstream::eprintln!("{}: {}", style::warning("warning"), plain(&note));
    }
    Ok(())
}

fn revoke_there(folder: &Path, id: &str, note: Option<&String>) -> anyhow::Result<KeyEnded> {
    let known = kept(folder).map_err(|error| refused(&error))?;
    let Some(mut record) = known.iter().find(|record| record.id == id).cloned() else {
        return Err(
            Refused(format!("there is no key `{}`: `redrive keys list` shows them", plain(id))).into()
        );
    };
    if record.revoked_at.is_none() {
        record.revoked_at = Some(now());
        put(folder, "key-revoke", record.clone(), note.cloned())?;
    }
    let note = keys::note_on_end(&record, known.iter(), now()).map(ToOwned::to_owned);
    Ok(KeyEnded { shown: KeyShown::new(&record, None, now()), note })
}

/// The keys that a folder holds.
fn kept(folder: &Path) -> Result<Vec<KeyRecord>, StoreError> {
    store::open_reader(folder)?.keys()
}

/// Writes a key and who did it, in one.
fn put(folder: &Path, act: &'static str, record: KeyRecord, note: Option<String>) -> anyhow::Result<()> {
    let by = By::somebody("the owner of the data folder");
    let deed = Deed { act, what: keys::describe(&record), by, note };
    let notes = vec![Note::Key(Box::new(record)), Note::Deed(Box::new(deed))];
    let batch = Batch { notes, ..Batch::default() };
    store::write_once(folder, &batch, now()).map_err(|error| match error {
        // Another folder's keys would be of no use to that server.
        StoreError::InUse { path, owner } => {
            let shown = path.display();
            let cure =
                "ask it instead, without --data and with an admin's key in REDRIVE_KEY, or stop it first";
            Refused(format!("a server runs on {shown} (process {owner}): {cure}")).into()
        }
        other => refused(&other),
    })?;
    Ok(())
}

fn refused(error: &StoreError) -> anyhow::Error {
    Refused(error.to_string()).into()
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::EPOCH + since
}
