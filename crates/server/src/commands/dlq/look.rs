//! `redrive dlq list`, `groups`, `show` and `export`: what can be read without changing anything.

use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use redrive_core::letters::envelope::Envelope;
use redrive_core::time::Timestamp;
use redrive_node::store::letter::{LetterFilter, LetterQuery};
use redrive_node::store::{self, Reader, StoreError};
use serde_json::Value;

use super::query;
use crate::api::shape::letters::{Form, GroupShown, GroupsFound, LetterShown, LettersFound};
use crate::cli::{DlqExportArgs, DlqGroupsArgs, DlqListArgs, DlqShowArgs, Format, FromArgs};
use crate::client::{Ask, segment};
use crate::commands::{Refused, print, print_json, service_name, wait_for};
use crate::letters::filter::FilterKeys;
use crate::letters::find::{self, Found, not_dead};
use crate::letters::{EXPORT_PAGE, GROUPS_MAX, LIST_MAX, everything, filter, view};
use crate::show::{letter, letters, plain, style, terminal_columns};

/// A data folder that is read without its server.
struct Folder<'a> {
    path: &'a Path,
    reader: Box<dyn Reader>,
    now: Timestamp,
}

impl<'a> Folder<'a> {
    fn open(path: &'a Path) -> anyhow::Result<Self> {
        let reader = store::open_reader(path).map_err(|error| refused(&error))?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Self { path, reader, now: Timestamp::EPOCH + since })
    }

    fn filter(&self, keys: &FilterKeys) -> anyhow::Result<LetterFilter> {
        keys.clone().filter(self.now).map_err(|wrong| Refused(wrong.to_string()).into())
    }

    /// Where no letter was found: whether that is since nothing goes by the service's name.
    fn check_service(&self, args: &FilterKeys) -> anyhow::Result<()> {
        service_name::check_in(self.path, &*self.reader, None, args.service.as_deref())
    }
}

fn refused(error: &StoreError) -> Refused {
    Refused(error.to_string())
}

pub(super) fn list(args: &DlqListArgs) -> anyhow::Result<ExitCode> {
    let (found, now) = match &args.from.data {
        Some(folder) => listed_there(&Folder::open(folder)?, args)?,
        None => wait_for(listed(args))?,
    };
    match args.format {
        Format::Json => print_json(&found.dead_letters)?,
        Format::Text => print(&letters::list(&found.dead_letters, now, terminal_columns()))?,
    }
    if let Some(next) = &found.next {
        let more = format!("there are more: --before {}", plain(next));
        anstream::eprintln!("{}", style::dim(more));
    }
    Ok(ExitCode::SUCCESS)
}

/// As many as were asked for, page by page: a page may be short and still not be the last.
async fn listed(args: &DlqListArgs) -> anyhow::Result<(LettersFound, Timestamp)> {
    let mut client = args.from.server.client()?;
    let mut all = Gathered::new(args);
    loop {
        let mut keys = args.filter.keys();
        keys.extend(all.before.clone().map(|before| ("before".to_owned(), before.into())));
        keys.insert("limit".to_owned(), all.missing().to_string().into());
        let ask = Ask::get(format!("/v1/dead-letters?{}", query(&keys)));
        let (page, now) = client.timed_json::<LettersFound>(&ask).await?;
        if all.is_whole_with(page) {
            if all.letters.is_empty() {
                service_name::check(&mut client, args.filter.service.as_deref()).await?;
            }
            return Ok((all.found(), now));
        }
    }
}

fn listed_there(folder: &Folder<'_>, args: &DlqListArgs) -> anyhow::Result<(LettersFound, Timestamp)> {
    let mut all = Gathered::new(args);
    let filter = folder.filter(&args.filter)?;
    loop {
        let before = all.before.as_deref().map(filter::read_cursor).transpose();
        let before = before.map_err(|problem| Refused(format!("--before is not right: {problem}")))?;
        let query = LetterQuery { filter: filter.clone(), before, rows_max: all.missing() };
        let page = folder.reader.letters(&query).map_err(|error| refused(&error))?;
        if all.is_whole_with(view::letters(&page)) {
            if all.letters.is_empty() {
                folder.check_service(&args.filter)?;
            }
            return Ok((all.found(), folder.now));
        }
    }
}

/// A list in the making.
struct Gathered {
    letters: Vec<LetterShown>,
    before: Option<String>,
    wanted: usize,
}

impl Gathered {
    fn new(args: &DlqListArgs) -> Self {
        let wanted = usize::try_from(args.limit).unwrap_or(usize::MAX);
        Self { letters: Vec::new(), before: args.before.clone(), wanted }
    }

    fn missing(&self) -> usize {
        (self.wanted - self.letters.len()).min(LIST_MAX)
    }

    /// Adds a page; whether that is all there is or all that is wanted.
    fn is_whole_with(&mut self, page: LettersFound) -> bool {
        self.letters.extend(page.dead_letters);
        self.before = page.next;
        self.before.is_none() || self.letters.len() >= self.wanted
    }

    fn found(self) -> LettersFound {
        LettersFound { dead_letters: self.letters, next: self.before }
    }
}

pub(super) fn groups(args: &DlqGroupsArgs) -> anyhow::Result<ExitCode> {
    let Grouped { groups, claimed_by, now } = match &args.from.data {
        Some(folder) => grouped_there(&Folder::open(folder)?, args)?,
        None => wait_for(grouped(args))?,
    };
    match args.format {
        Format::Json => print_json(&groups)?,
        Format::Text => print(&letters::groups(&groups, claimed_by, now, terminal_columns()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Causes, and what matters before the first of them is replayed.
struct Grouped {
    groups: Vec<GroupShown>,
    /// The replay that a letter of the first cause belongs to.
    claimed_by: Option<u64>,
    now: Timestamp,
}

async fn grouped(args: &DlqGroupsArgs) -> anyhow::Result<Grouped> {
    let mut client = args.from.server.client()?;
    let ask = Ask::get(format!("/v1/failure-groups?{}", query(&args.filter.keys())));
    let (GroupsFound { groups }, now) = client.timed_json(&ask).await?;
    let Some(first) = groups.first() else {
        service_name::check(&mut client, args.filter.service.as_deref()).await?;
        return Ok(Grouped { groups, claimed_by: None, now });
    };
    let claimed_by = match args.format {
        Format::Json => None,
        Format::Text => {
            let mut keys = args.filter.keys();
            keys.insert("fingerprint".to_owned(), first.fingerprint.clone().into());
            keys.insert("limit".to_owned(), "1".into());
            let ask = Ask::get(format!("/v1/dead-letters?{}", query(&keys)));
            let found: LettersFound = client.json(&ask).await?;
            claim_of(&found)
        }
    };
    Ok(Grouped { groups, claimed_by, now })
}

fn grouped_there(folder: &Folder<'_>, args: &DlqGroupsArgs) -> anyhow::Result<Grouped> {
    let filter = folder.filter(&args.filter)?;
    let found = folder.reader.groups(&filter, folder.now, GROUPS_MAX).map_err(|error| refused(&error))?;
    let Some(first) = found.first() else {
        folder.check_service(&args.filter)?;
        return Ok(Grouped { groups: Vec::new(), claimed_by: None, now: folder.now });
    };
    let of_first = LetterFilter { fingerprint: Some(first.fingerprint), ..LetterFilter::default() };
    let query = LetterQuery { filter: of_first, before: None, rows_max: 1 };
    let letters = folder.reader.letters(&query).map_err(|error| refused(&error))?;
    let claimed_by = claim_of(&view::letters(&letters));
    Ok(Grouped { groups: found.iter().map(view::group).collect(), claimed_by, now: folder.now })
}

fn claim_of(found: &LettersFound) -> Option<u64> {
    found.dead_letters.first().and_then(|letter| letter.claimed_by)
}

pub(super) fn show(args: &DlqShowArgs) -> anyhow::Result<ExitCode> {
    // People see the whole story; programs may ask for the short one.
    let form = match args.format {
        Format::Text => Some(Form::Envelope),
        Format::Json => args.form,
    };
    let (letter, now) = one(&args.from, &args.letter, form)?;
    match args.format {
        Format::Json => print_json(&letter)?,
        Format::Text => {
            let envelope: Envelope = serde_json::from_value(letter)?;
            print(&letter::page(&envelope, now))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn one(from: &FromArgs, name: &str, form: Option<Form>) -> anyhow::Result<(Value, Timestamp)> {
    let Some(folder) = &from.data else {
        return wait_for(async {
            let mut client = from.server.client()?;
            let path = format!("/v1/dead-letters/{}", segment(name));
            let form = form.map(|form| format!("?form={}", form.as_str())).unwrap_or_default();
            Ok(client.timed_json(&Ask::get(path + &form)).await?)
        });
    };
    let folder = Folder::open(folder)?;
    let problem = match find::letter(&*folder.reader, name, |_| true).map_err(|error| refused(&error))? {
        Found::Letter(letter) => {
            return Ok((view::written(&letter, form.unwrap_or(Form::Envelope)), folder.now));
        }
        Found::NotDead { id, state } => not_dead(id, &state),
        Found::Several(ids) => format!("{} dead letters match: {}", ids.len(), ids.join(", ")),
        Found::Nothing => format!("there is no dead letter `{}`", plain(name)),
    };
    Err(Refused(problem).into())
}

pub(super) fn export(args: &DlqExportArgs) -> anyhow::Result<ExitCode> {
    let form = args.form;
    match &args.from.data {
        Some(folder) => exported_there(&Folder::open(folder)?, args, form.unwrap_or(Form::Envelope))?,
        None => wait_for(async {
            let mut client = args.from.server.client()?;
            let mut keys = args.filter.keys();
            keys.extend(form.map(|form| ("form".to_owned(), form.as_str().into())));
            let ask = Ask::get(format!("/v1/dead-letters/export?{}", query(&keys)));
            let mut lines = client.lines(&ask).await?;
            loop {
                match lines.next().await {
                    Ok(Some(line)) => print(&(line + "\n"))?,
                    Ok(None) => return Ok(()),
                    Err(problem) => {
                        return Err(Refused(format!("the export is not complete: {problem}")).into());
                    }
                }
            }
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

fn exported_there(folder: &Folder<'_>, args: &DlqExportArgs, form: Form) -> anyhow::Result<()> {
    let selection = everything(folder.filter(&args.filter)?, folder.now);
    let mut after = None;
    loop {
        let page = folder.reader.export(&selection, after, EXPORT_PAGE).map_err(|error| refused(&error))?;
        for letter in &page.letters {
            print(&format!("{}\n", view::written(letter, form)))?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}
