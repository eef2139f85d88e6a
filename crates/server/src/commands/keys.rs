//! `redrive keys`: made, listed and revoked, by a server or on a data folder that none runs on.

use std::path::Path;

use redrive::clock::wall_clock;
use redrive_core::access::{Role, Scope};
use redrive_core::text::show_duration;
use redrive_node::store::door::{By, Deed, KEYS_MAX, KeyRecord};
use redrive_node::store::{self, Batch, Note, StoreError};
use serde_json::json;

use super::{Refused, print, print_as};
use crate::api::shape::keys::{KeyEnded, KeyMade, KeyShown, KeysFound};
use crate::cli::{Keys, KeysArgs, KeysCreateArgs, KeysListArgs, KeysRevokeArgs};
use crate::client::{Ask, segment};
use crate::keys::{self, KeyWish, Made};
use crate::show::keys as show;
use crate::show::{plain, style};

pub(super) async fn run(args: &KeysArgs) -> anyhow::Result<()> {
    match &args.what {
        Keys::Create(args) => create(args).await,
        Keys::List(args) => list(args).await,
        Keys::Revoke(args) => revoke(args).await,
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
        // A key that is made twice is one too many.
        args.at.server.client()?.json::<KeyMade>(&Ask::json("/v1/keys", &wanted).once()).await?
    };
    if args.quiet { print(&format!("{}\n", made.key)) } else { print(&show::made(&made)) }
}

fn create_there(folder: &Path, args: &KeysCreateArgs) -> anyhow::Result<KeyMade> {
    let wish = KeyWish {
        name: args.name.clone(),
        role: args.role,
        scope: Scope { sources: args.sources.clone(), services: args.services.clone() },
        rate: args.rate,
        lives: args.expires,
    };
    let known = match kept(folder) {
        Ok(known) => known,
        // The folder is made with its first key.
        Err(StoreError::NotOpened { .. }) => Vec::new(),
        Err(error) => return Err(Refused::of(error).into()),
    };
    if known.is_empty() && wish.role != Role::Admin {
        return Err(Refused(format!("the role {}", keys::FIRST_IS_ADMIN)).into());
    }
    if known.len() >= KEYS_MAX {
        return Err(Refused(format!("there are {KEYS_MAX} keys already, revoked ones included")).into());
    }
    let is_taken = |id: &str| known.iter().any(|record| record.id == id);
    let Made { text, record } = keys::make(wish, is_taken, wall_clock()).map_err(Refused::of)?;
    let shown = KeyShown::new(&record, None, wall_clock());
    put(folder, "key-create", record, None)?;
    Ok(KeyMade { key: text, shown })
}

async fn list(args: &KeysListArgs) -> anyhow::Result<()> {
    let (found, now) = match &args.at.data {
        Some(folder) => {
            let now = wall_clock();
            let records = kept(folder).map_err(Refused::of)?;
            let keys = records.iter().map(|record| KeyShown::new(record, None, now)).collect();
            (KeysFound { keys }, now)
        }
        None => args.at.server.client()?.timed_json(&Ask::get("/v1/keys")).await?,
    };
    print_as(args.format, &found.keys, || show::list(&found.keys, now))
}

async fn revoke(args: &KeysRevokeArgs) -> anyhow::Result<()> {
    let id = keys::id_within(&args.id);
    let KeyEnded { shown, note } = if let Some(folder) = &args.at.data {
        revoke_there(folder, id, args.note.as_ref())?
    } else {
        let ask = Ask::json(format!("/v1/keys/{}/revoke", segment(id)), &json!({ "note": args.note }));
        args.at.server.client()?.json(&ask).await?
    };
    print(&show::revoked(&shown))?;
    if let Some(note) = note {
        anstream::eprintln!("{}: {}", style::warning("warning"), plain(&note));
    }
    Ok(())
}

fn revoke_there(folder: &Path, id: &str, note: Option<&String>) -> anyhow::Result<KeyEnded> {
    let known = kept(folder).map_err(Refused::of)?;
    let Some(mut record) = known.iter().find(|record| record.id == id).cloned() else {
        return Err(
            Refused(format!("there is no key `{}`: `redrive keys list` shows them", plain(id))).into()
        );
    };
    if record.revoked_at.is_none() {
        record.revoked_at = Some(wall_clock());
        put(folder, "key-revoke", record.clone(), note.cloned())?;
    }
    let note = keys::note_on_end(&record, known.iter(), wall_clock()).map(ToOwned::to_owned);
    Ok(KeyEnded { shown: KeyShown::new(&record, None, wall_clock()), note })
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
    store::write_once(folder, &batch, wall_clock()).map_err(|error| match error {
        // Another folder's keys would be of no use to that server.
        StoreError::InUse { path, owner } => {
            let shown = path.display();
            let cure =
                "ask it instead, without --data and with an admin's key in REDRIVE_KEY, or stop it first";
            Refused(format!("a server runs on {shown} (process {owner}): {cure}"))
        }
        other => Refused::of(other),
    })?;
    Ok(())
}
