//! `redrive dlq list`, `groups`, `show` and `export`: the read-only commands.

use clap::Args;
use redrive::clock::wall_clock;
use redrive_core::time::Timestamp;
use redrive_node::store::letter::{LetterFilter, LetterQuery};
use serde_json::{Value, json};

use crate::cli::{CommandRefusal, Format, RecordArgs};
use crate::client::address::segment;
use crate::client::{ClientRequest, gather};
use crate::letters::command::letter_request;
use crate::letters::filter::{self, FilterKeys};
use crate::letters::find::{self, LetterLookup, not_dead};
use crate::letters::json::{
    FailureGroupJson, FailureGroupsResponse, LetterFormat, LetterJson, LettersResponse,
};
use crate::letters::{EXPORT_PAGE, GROUPS_MAX, everything, text};
use crate::services::name_check;
use crate::storage::record::RecordFolder;
use crate::terminal::{plain, print, print_as, print_json, style, terminal_columns};

/// Lists dead letters, latest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq list
  redrive dlq list --service billing --from 2h
  redrive dlq list --fingerprint 00c0ffee00c0ffee --text 'customer 7' --format json
  redrive dlq list --data /var/lib/redrive

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct DlqListArgs {
    #[command(flatten)]
    pub(crate) filter: FilterKeys,
    /// Maximum number of letters
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
    /// Continues an earlier list
    #[arg(long, value_name = "CURSOR")]
    pub(crate) before: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) from: RecordArgs,
}

/// Shows failure groups: dead letters by cause, with counts, age and trend.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq groups
  redrive dlq groups --service billing --format json

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct DlqGroupsArgs {
    #[command(flatten)]
    pub(crate) filter: FilterKeys,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) from: RecordArgs,
}

/// Shows a dead letter with its attempts and data.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq show 3c6ef372
  redrive dlq show 3c6ef372 --format json
  redrive dlq show 3c6ef372 --format json --form redis

Exit code: 0 shown, 1 not found, 2 wrong use, 3 no server.")]
pub(crate) struct DlqShowArgs {
    /// The letter's id, id prefix, or original id
    #[arg(value_name = "LETTER")]
    pub(crate) letter: String,
    /// Form of the `json` output (default: `dead_letter.form` of the rule book; with --data: envelope)
    #[arg(long, value_enum)]
    pub(crate) form: Option<LetterFormat>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) from: RecordArgs,
}

/// Exports dead letters, one JSON object per line, oldest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq export > letters.jsonl
  redrive dlq export --service billing --form redis
  redrive dlq export --data /var/lib/redrive | jq -r .originalEventId

Exit code: 0 exported, 1 refused or incomplete, 2 wrong use, 3 no server.")]
pub(crate) struct DlqExportArgs {
    #[command(flatten)]
    pub(crate) filter: FilterKeys,
    /// Form of each letter (default: `dead_letter.form` of the rule book; with --data: envelope)
    #[arg(long, value_enum)]
    pub(crate) form: Option<LetterFormat>,
    #[command(flatten)]
    pub(crate) from: RecordArgs,
}

impl RecordFolder<'_> {
    fn filter(&self, keys: &FilterKeys) -> Result<LetterFilter, CommandRefusal> {
        keys.clone().filter(self.now).map_err(CommandRefusal::of)
    }

    /// If nothing was found: whether the service exists.
    fn check_service(&self, args: &FilterKeys) -> anyhow::Result<()> {
        name_check::check_in(self.path, &*self.reader, None, args.service.as_deref())
    }
}

pub(crate) async fn list(args: &DlqListArgs) -> anyhow::Result<()> {
    let (found, next, now) = match &args.from.data {
        Some(folder) => listed_there(&RecordFolder::open(folder)?, args).await?,
        None => listed(args).await?,
    };
    print_as(args.format, &found, || text::list(&found, now, terminal_columns()))?;
    if let Some(next) = &next {
        let more = format!("more: --before {}", plain(next));
        anstream::eprintln!("{}", style::dim(more));
    }
    Ok(())
}

/// Letters, cursor of the next page, and time of the answer.
type LetterList = (Vec<LetterJson>, Option<String>, Timestamp);

async fn listed(args: &DlqListArgs) -> anyhow::Result<LetterList> {
    let mut client = args.from.server.client()?;
    let mut now = wall_clock();
    let (letters, next) = gather(args.limit, args.before.clone(), async |limit, before| {
        let keys = letter_request(&args.filter, json!({ "before": before, "limit": limit }));
        let found: LettersResponse;
        (found, now) = client.timed_json(&ClientRequest::find("/v1/dead-letters", &keys)).await?;
        Ok((found.dead_letters, found.next))
    })
    .await?;
    if letters.is_empty() {
        name_check::check(&mut client, args.filter.service.as_deref()).await?;
    }
    Ok((letters, next, now))
}

async fn listed_there(folder: &RecordFolder<'_>, args: &DlqListArgs) -> anyhow::Result<LetterList> {
    let filter = folder.filter(&args.filter)?;
    let (letters, next) = gather(args.limit, args.before.clone(), async |rows_max, before| {
        let before = before.as_deref().map(filter::read_cursor).transpose();
        let before = before.map_err(|problem| CommandRefusal(format!("--before is invalid: {problem}")))?;
        let query = LetterQuery { filter: filter.clone(), before, rows_max };
        let page = crate::letters::json::letters(&folder.reader.letters(&query).map_err(CommandRefusal::of)?);
        Ok((page.dead_letters, page.next))
    })
    .await?;
    if letters.is_empty() {
        folder.check_service(&args.filter)?;
    }
    Ok((letters, next, folder.now))
}

pub(crate) async fn groups(args: &DlqGroupsArgs) -> anyhow::Result<()> {
    let FailureGroups { groups, claimed_by, now } = match &args.from.data {
        Some(folder) => grouped_there(&RecordFolder::open(folder)?, args)?,
        None => grouped(args).await?,
    };
    print_as(args.format, &groups, || text::groups(&groups, claimed_by, now, terminal_columns()))
}

struct FailureGroups {
    groups: Vec<FailureGroupJson>,
    /// The replay that has claimed letters of the first group.
    claimed_by: Option<u64>,
    now: Timestamp,
}

async fn grouped(args: &DlqGroupsArgs) -> anyhow::Result<FailureGroups> {
    let mut client = args.from.server.client()?;
    let ask = ClientRequest::find("/v1/failure-groups", &letter_request(&args.filter, json!({})));
    let (FailureGroupsResponse { groups }, now) = client.timed_json(&ask).await?;
    let Some(first) = groups.first() else {
        name_check::check(&mut client, args.filter.service.as_deref()).await?;
        return Ok(FailureGroups { groups, claimed_by: None, now });
    };
    let claimed_by = match args.format {
        Format::Json => None,
        Format::Text => {
            let keys = letter_request(&args.filter, json!({ "fingerprint": first.fingerprint, "limit": 1 }));
            claim_of(&client.json(&ClientRequest::find("/v1/dead-letters", &keys)).await?)
        }
    };
    Ok(FailureGroups { groups, claimed_by, now })
}

fn grouped_there(folder: &RecordFolder<'_>, args: &DlqGroupsArgs) -> anyhow::Result<FailureGroups> {
    let filter = folder.filter(&args.filter)?;
    let found = folder.reader.groups(&filter, folder.now, GROUPS_MAX).map_err(CommandRefusal::of)?;
    let Some(first) = found.first() else {
        folder.check_service(&args.filter)?;
        return Ok(FailureGroups { groups: Vec::new(), claimed_by: None, now: folder.now });
    };
    let of_first = LetterFilter { fingerprint: Some(first.fingerprint), ..LetterFilter::default() };
    let query = LetterQuery { filter: of_first, before: None, rows_max: 1 };
    let letters = folder.reader.letters(&query).map_err(CommandRefusal::of)?;
    let claimed_by = claim_of(&crate::letters::json::letters(&letters));
    Ok(FailureGroups {
        groups: found.iter().map(crate::letters::json::group).collect(),
        claimed_by,
        now: folder.now,
    })
}

fn claim_of(found: &LettersResponse) -> Option<u64> {
    found.dead_letters.first().and_then(|letter| letter.claimed_by)
}

pub(crate) async fn show(args: &DlqShowArgs) -> anyhow::Result<()> {
    // People see the full history; programs may ask for the short form.
    let form = match args.format {
        Format::Text => Some(LetterFormat::Envelope),
        Format::Json => args.form,
    };
    let (letter, now) = one(&args.from, &args.letter, form).await?;
    match args.format {
        Format::Json => print_json(&letter),
        Format::Text => print(&text::page(&serde_json::from_value(letter)?, now)),
    }
}

async fn one(
    from: &RecordArgs,
    name: &str,
    form: Option<LetterFormat>,
) -> anyhow::Result<(Value, Timestamp)> {
    let Some(folder) = &from.data else {
        let path = format!("/v1/dead-letters/{}", segment(name));
        let form = form.map(|form| format!("?form={}", form.as_str())).unwrap_or_default();
        return Ok(from.server.client()?.timed_json(&ClientRequest::get(path + &form)).await?);
    };
    let folder = RecordFolder::open(folder)?;
    let problem = match find::letter(&*folder.reader, name, |_| true).map_err(CommandRefusal::of)? {
        LetterLookup::Letter(letter) => {
            return Ok((
                crate::letters::json::written(&letter, form.unwrap_or(LetterFormat::Envelope)),
                folder.now,
            ));
        }
        LetterLookup::NotDead { id, state } => not_dead(id, &state),
        LetterLookup::Several(ids) => format!("{} dead letters match: {}", ids.len(), ids.join(", ")),
        LetterLookup::Nothing => format!("no dead letter `{}`", plain(name)),
    };
    Err(CommandRefusal(problem).into())
}

pub(crate) async fn export(args: &DlqExportArgs) -> anyhow::Result<()> {
    if let Some(folder) = &args.from.data {
        return exported_there(&RecordFolder::open(folder)?, args);
    }
    let keys = letter_request(&args.filter, json!({ "form": args.form.map(LetterFormat::as_str) }));
    let mut lines =
        args.from.server.client()?.lines(&ClientRequest::find("/v1/dead-letters/export", &keys)).await?;
    let broken = |problem| CommandRefusal(format!("export incomplete: {problem}"));
    while let Some(line) = lines.next().await.map_err(broken)? {
        print(&(line + "\n"))?;
    }
    Ok(())
}

fn exported_there(folder: &RecordFolder<'_>, args: &DlqExportArgs) -> anyhow::Result<()> {
    let form = args.form.unwrap_or(LetterFormat::Envelope);
    let selection = everything(folder.filter(&args.filter)?, folder.now);
    let mut after = None;
    loop {
        let page = folder.reader.export(&selection, after, EXPORT_PAGE).map_err(CommandRefusal::of)?;
        for letter in &page.letters {
            print(&format!("{}\n", crate::letters::json::written(letter, form)))?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}
