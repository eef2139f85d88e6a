//! `redrive dlq list`, `groups`, `show` and `export`: what can be read without changing anything.

use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use redrive::core::envelope::Envelope;
use redrive::core::time::Timestamp;
use redrive::store::letter::LetterQuery;
use redrive::store::sqlite::Sqlite;
use redrive::store::{Reader, StoreError};
use serde_json::Value;

use super::query;
use crate::api::shape::letters::{Form, GroupShown, GroupsFound, LetterShown, LettersFound};
use crate::cli::{DlqExportArgs, DlqGroupsArgs, DlqListArgs, DlqShowArgs, FilterArgs, Format, FromArgs};
use crate::client::{Ask, segment};
use crate::commands::{Refused, print, print_json, wait_for};
use crate::letters::fields::Fields;
use crate::letters::find::{self, Found, not_dead};
use crate::letters::{EXPORT_PAGE, GROUPS_MAX, LIST_MAX, everything, filter, view};
use crate::show::{letter, letters, plain, style, terminal_columns};

/// A data folder that is read without its server.
struct Folder {
    reader: Box<dyn Reader>,
    now: Timestamp,
}

impl Folder {
    fn open(folder: &Path) -> anyhow::Result<Self> {
        let reader = Sqlite::open_reader(folder).map_err(|error| refused(&error))?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Self { reader, now: Timestamp::EPOCH + since })
    }

    fn filter(&self, args: &FilterArgs) -> anyhow::Result<redrive::store::letter::LetterFilter> {
        let mut fields = Fields::of_pairs(args.pairs());
        filter::take(&mut fields, self.now).map_err(|wrong| Refused(wrong.to_string()).into())
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
        let mut pairs = args.filter.pairs();
        pairs.extend(all.before.clone().map(|before| ("before", before)));
        pairs.push(("limit", all.missing().to_string()));
        let ask = Ask::get(format!("/v1/dead-letters?{}", query(pairs)));
        let (page, now) = client.timed_json::<LettersFound>(&ask).await?;
        if all.is_whole_with(page) {
            return Ok((all.found(), now));
        }
    }
}

fn listed_there(folder: &Folder, args: &DlqListArgs) -> anyhow::Result<(LettersFound, Timestamp)> {
    let mut all = Gathered::new(args);
    let filter = folder.filter(&args.filter)?;
    loop {
        let before = all.before.as_deref().map(filter::read_cursor).transpose();
        let before = before.map_err(|problem| Refused(format!("--before is not right: {problem}")))?;
        let query = LetterQuery { filter: filter.clone(), before, rows_max: all.missing() };
        let page = folder.reader.letters(&query).map_err(|error| refused(&error))?;
        if all.is_whole_with(view::letters(&page)) {
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
    let (found, now) = match &args.from.data {
        Some(folder) => {
            let folder = Folder::open(folder)?;
            let filter = folder.filter(&args.filter)?;
            let found =
                folder.reader.groups(&filter, folder.now, GROUPS_MAX).map_err(|error| refused(&error))?;
            (found.iter().map(view::group).collect::<Vec<GroupShown>>(), folder.now)
        }
        None => wait_for(async {
            let mut client = args.from.server.client()?;
            let ask = Ask::get(format!("/v1/failure-groups?{}", query(args.filter.pairs())));
            let (found, now) = client.timed_json::<GroupsFound>(&ask).await?;
            Ok((found.groups, now))
        })?,
    };
    match args.format {
        Format::Json => print_json(&found)?,
        Format::Text => print(&letters::groups(&found, now, terminal_columns()))?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn show(args: &DlqShowArgs) -> anyhow::Result<ExitCode> {
    // People see the whole story; programs may ask for the short one.
    let form = match args.format {
        Format::Text => Form::Envelope,
        Format::Json => args.form.into(),
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

fn one(from: &FromArgs, name: &str, form: Form) -> anyhow::Result<(Value, Timestamp)> {
    let Some(folder) = &from.data else {
        return wait_for(async {
            let mut client = from.server.client()?;
            let path = format!("/v1/dead-letters/{}?form={}", segment(name), form.as_str());
            Ok(client.timed_json(&Ask::get(path)).await?)
        });
    };
    let folder = Folder::open(folder)?;
    let problem = match find::letter(&*folder.reader, name, |_| true).map_err(|error| refused(&error))? {
        Found::Letter(letter) => return Ok((view::written(&letter, form), folder.now)),
        Found::NotDead { id, state } => not_dead(id, &state),
        Found::Several(ids) => format!("{} dead letters begin so: {}", ids.len(), ids.join(", ")),
        Found::Nothing => format!("there is no dead letter `{}`", plain(name)),
    };
    Err(Refused(problem).into())
}

pub(super) fn export(args: &DlqExportArgs) -> anyhow::Result<ExitCode> {
    let form = Form::from(args.form);
    match &args.from.data {
        Some(folder) => exported_there(&Folder::open(folder)?, args, form)?,
        None => wait_for(async {
            let mut client = args.from.server.client()?;
            let mut pairs = args.filter.pairs();
            pairs.push(("form", form.as_str().to_owned()));
            let ask = Ask::get(format!("/v1/dead-letters/export?{}", query(pairs)));
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

fn exported_there(folder: &Folder, args: &DlqExportArgs, form: Form) -> anyhow::Result<()> {
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
