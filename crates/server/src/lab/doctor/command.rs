//! `redrive doctor`: problems of a server or a data folder, and the rule-book change for each.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use redrive_core::book::RuleBook;
use redrive_core::book::problem::suggest;
use redrive_core::text::show_count;
use redrive_core::time::Timestamp;
use redrive_lab::doctor::{self, DELIVERIES_MAX, DoctorReport, Harm};
use redrive_node::runtime::BreakerHistory;
use redrive_node::store::{StoreError, StoreReader};

use crate::cli::{CommandRefusal, Format, RecordArgs, one_of, wait_for};
use crate::client::ClientRequest;
use crate::connectors;
use crate::lab::doctor::evidence::{self, DeliveryEvidence, StoreEvidence};
use crate::lab::doctor::text;
use crate::rules::file::{machine, read_book};
use crate::services::name_check;
use crate::storage::record::RecordFolder;
use crate::terminal::{self, print, print_json, style};

/// Finds problems of a server, with the evidence and the rule-book change that fixes each.
///
/// Reads the latest 5,000 deliveries with all attempts, queues, breakers, dead letters and the server's
/// counters. Services with too little data are not judged.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive doctor
  redrive doctor --service billing
  redrive doctor --data /var/lib/redrive --rules redrive.yaml
  redrive doctor --deny high --format json
  redrive doctor --explain timeout-too-short

Exit code: 0 examined, 1 a finding as harmful as --deny, or refused, 2 wrong use, 3 no server.")]
pub(crate) struct DoctorArgs {
    /// Only this service and its channels
    #[arg(long)]
    pub(crate) service: Option<String>,
    /// With --data: the rule book to compare with [default: the one of the latest attempt]
    #[arg(long, value_name = "FILE", requires = "data")]
    pub(crate) rules: Option<PathBuf>,
    /// Exits with 1 if a finding does this much harm or more
    #[arg(long, value_name = "HARM", value_parser = one_of(&HARMS))]
    pub(crate) deny: Option<Harm>,
    /// Explains a diagnosis; `all` lists every one
    #[arg(long, value_name = "CODE")]
    pub(crate) explain: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) from: RecordArgs,
}

const HARMS: [(&str, &str, Harm); 4] = [
    ("critical", "Deliveries are stuck, or most of them fail", Harm::Critical),
    ("high", "Deliveries fail needlessly", Harm::High),
    ("medium", "Slower or more costly than necessary", Harm::Medium),
    ("low", "Anything", Harm::Low),
];

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    if let Some(code) = &args.explain {
        return explain(code);
    }
    let (found, now, whence) = match &args.from.data {
        Some(folder) => {
            let (found, now) = examined(folder, args)?;
            (found, now, folder.display().to_string())
        }
        None => wait_for(asked(args))?,
    };
    match args.format {
        Format::Json => print_json(&found)?,
        Format::Text => print(&text::page(&found, &whence, now, terminal::columns()))?,
    }
    let is_denied = args.deny.is_some_and(|limit| found.findings.iter().any(|finding| finding.harm <= limit));
    Ok(if is_denied { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

async fn asked(args: &DoctorArgs) -> anyhow::Result<(DoctorReport, Timestamp, String)> {
    let mut client = args.from.server.client()?;
    let path = match &args.service {
        Some(service) => {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.append_pair("service", service);
            format!("/v1/doctor?{}", query.finish())
        }
        None => "/v1/doctor".to_owned(),
    };
    let (found, now) = client.timed_json::<DoctorReport>(&ClientRequest::get(path)).await?;
    if found.looked_at.deliveries == 0 {
        name_check::check(&mut client, args.service.as_deref()).await?;
    }
    Ok((found, now, client.address().to_string()))
}

fn examined(folder: &Path, args: &DoctorArgs) -> anyhow::Result<(DoctorReport, Timestamp)> {
    let RecordFolder { reader, now, .. } = RecordFolder::open(folder)?;
    let deliveries = deliveries(&*reader, args.service.clone()).map_err(CommandRefusal::of)?;
    let mut rest = evidence::rest(&*reader, deliveries.latest_book()).map_err(CommandRefusal::of)?;
    let turns = BreakerHistory::remembered_by(&*reader).map_err(CommandRefusal::of)?;
    let book = book(args.rules.as_deref(), &mut rest)?;
    if deliveries.count() == 0 {
        name_check::check_in(folder, &*reader, Some(&book), args.service.as_deref())?;
    }
    let evidence = evidence::evidence(Arc::new(book), deliveries, rest, &turns, None, now);
    Ok((doctor::examine(&evidence), now))
}

fn deliveries(reader: &dyn StoreReader, service: Option<String>) -> Result<DeliveryEvidence, StoreError> {
    let is_watched = std::io::stderr().is_terminal();
    let mut deliveries = DeliveryEvidence::of(service);
    while let Some(wanted) = deliveries.wanted() {
        deliveries.add(reader.deliveries_with_attempts(&wanted)?);
        if is_watched {
            let (count, most) = (deliveries.count() as u64, DELIVERIES_MAX as u64);
            let line = format!("reading deliveries: {} of {}", show_count(count), show_count(most));
            anstream::eprint!("\r{}\x1b[K", style::dim(line));
        }
    }
    if is_watched {
        anstream::eprint!("\r\x1b[K");
    }
    Ok(deliveries)
}

/// The book of a file, or the one that judged the latest attempt.
fn book(rules: Option<&Path>, rest: &mut StoreEvidence) -> anyhow::Result<RuleBook> {
    if let Some(path) = rules {
        let (book, text) = read_book(path)?;
        rest.text = Some(text);
        return Ok(book);
    }
    let book = rest
        .text
        .as_deref()
        .and_then(|text| redrive_core::book::read_for(text, connectors::table(), machine()).book);
    let why = "no rule book recorded in the folder: pass --rules FILE";
    book.ok_or_else(|| CommandRefusal(why.to_owned()).into())
}

fn explain(code: &str) -> anyhow::Result<ExitCode> {
    if code == "all" {
        print(&text::list())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(diagnosis) = doctor::find(code) else {
        let advice = suggest(code, doctor::all().map(|diagnosis| diagnosis.code).collect::<Vec<_>>());
        let advice = if advice.ends_with('?') { advice } else { "list all with --explain all".to_owned() };
        return Err(CommandRefusal(format!("there is no diagnosis `{code}`: {advice}")).into());
    };
    print(&text::explained(diagnosis))?;
    Ok(ExitCode::SUCCESS)
}
