//! `redrive rules`: the rules that apply to a service and an event, with the origin of each value.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use redrive_core::book::RuleBook;
use redrive_core::book::model::{ChannelEntry, ServiceEntry};
use redrive_core::book::problem::{nearest, suggest};
use redrive_core::book::resolve::Resolved;
use redrive_lab::report::{explain, markdown};

use crate::cli::CommandRefusal;
use crate::rules::file::open_book;
use crate::rules::text;
use crate::terminal::{json_text, print};

/// Shows the rules that apply to a service and an event, and where each value comes from.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive rules --rules examples/rulebooks/notifications.yaml
  redrive rules notification-svc --rules examples/rulebooks/notifications.yaml
  redrive rules notification-svc todo.reminder.fired --rules examples/rulebooks/notifications.yaml
  redrive rules notification-svc/email todo.reminder.fired --rules examples/rulebooks/notifications.yaml
  redrive rules notification-svc --rules examples/rulebooks/notifications.yaml --format markdown > rules.md

Exit code: 0 shown, 1 no such service, or it does not subscribe to the event, 2 a file cannot be read.")]
pub(crate) struct RulesArgs {
    /// The service, or service/channel [default: all]
    pub(crate) service: Option<String>,
    /// The event type [default: all rows of the service]
    pub(crate) event: Option<String>,
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = RulesFormat::Text)]
    pub(crate) format: RulesFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RulesFormat {
    /// For people
    Text,
    /// Each value with its level, line and column; a list unless an event type is given
    Json,
    /// One page per rule
    Markdown,
}

pub(crate) fn run(args: &RulesArgs) -> anyhow::Result<()> {
    let book = open_book(&args.rules)?;
    let taker = match &args.service {
        Some(name) => Some(find_taker(&book, name)?),
        None => None,
    };
    let page = match (taker, &args.event) {
        (Some(taker), Some(event)) => one(&book, taker, event, args)?,
        (Some(taker), None) => many(&book, &taker.rules(&book), args)?,
        (None, _) => {
            let sections = book.sections();
            let all = sections.rows().map(|(service, channel, row)| sections.resolve(service, channel, row));
            many(&book, &all.collect::<Vec<_>>(), args)?
        }
    };
    print(&page)
}

#[derive(Clone, Copy)]
struct RuleTaker<'a> {
    service: &'a ServiceEntry,
    channel: Option<&'a ChannelEntry>,
}

impl<'a> RuleTaker<'a> {
    fn name(self) -> String {
        match self.channel {
            Some(channel) => format!("{}/{}", self.service.name, channel.name),
            None => self.service.name.to_string(),
        }
    }

    /// Rows of a service include those of its channels.
    fn rules(self, book: &'a RuleBook) -> Vec<Resolved<'a>> {
        let sections = book.sections();
        let rows = sections.rows().filter(|(service, channel, _)| {
            let is_same_channel = |own: &ChannelEntry| channel.is_some_and(|other| other.name == own.name);
            service.name == self.service.name && self.channel.is_none_or(is_same_channel)
        });
        rows.map(|(service, channel, row)| sections.resolve(service, channel, row)).collect()
    }

    /// A pattern of the book matches itself.
    fn rule(self, book: &'a RuleBook, event: &str) -> Option<Resolved<'a>> {
        let rows = self.channel.map_or(&self.service.rows, |channel| &channel.rows);
        if let Some(row) = rows.iter().find(|row| row.pattern.value.as_str() == event) {
            return Some(book.sections().resolve(self.service, self.channel, row));
        }
        let channel = self.channel.map(|channel| channel.name.as_str());
        book.explain(self.service.name.as_str(), channel, event)
    }
}

fn takers(book: &RuleBook) -> impl Iterator<Item = RuleTaker<'_>> {
    book.sections().services.iter().flat_map(|service| {
        let channels =
            service.channels.iter().map(move |channel| RuleTaker { service, channel: Some(channel) });
        std::iter::once(RuleTaker { service, channel: None }).chain(channels)
    })
}

fn find_taker<'a>(book: &'a RuleBook, name: &str) -> Result<RuleTaker<'a>, CommandRefusal> {
    takers(book)
        .find(|taker| taker.name() == name)
        .ok_or_else(|| CommandRefusal(format!("there is no service `{name}`: {}", advise(book, name))))
}

pub(crate) fn is_known(book: &RuleBook, name: &str) -> bool {
    takers(book).any(|taker| taker.name() == name)
}

/// Suggestions for an unknown service: a channel of that name, or similar names.
pub(crate) fn advise(book: &RuleBook, name: &str) -> String {
    let of_that_name =
        takers(book).filter(|taker| taker.channel.is_some_and(|own| own.name.as_str() == name));
    let channels: Vec<String> = of_that_name.map(|taker| format!("`{}`", taker.name())).collect();
    if !channels.is_empty() {
        return format!("did you mean {}?", channels.join(" or "));
    }
    let known: Vec<String> = takers(book).map(RuleTaker::name).collect();
    suggest(name, known.iter().map(String::as_str))
}

fn one(book: &RuleBook, taker: RuleTaker<'_>, event: &str, args: &RulesArgs) -> anyhow::Result<String> {
    let Some(rule) = taker.rule(book, event) else {
        return Err(CommandRefusal(not_subscribed(book, taker, event)).into());
    };
    Ok(match args.format {
        RulesFormat::Text => text::whole(book, &rule, event) + &see_also(book, taker, event),
        RulesFormat::Json => json_text(&explain::to_json(book, &rule))?,
        RulesFormat::Markdown => markdown::render(book, &rule),
    })
}

fn many(book: &RuleBook, rules: &[Resolved<'_>], args: &RulesArgs) -> anyhow::Result<String> {
    Ok(match args.format {
        RulesFormat::Text if rules.is_empty() => "The rule book has no services.\n".to_owned(),
        RulesFormat::Text => text::overview(rules),
        RulesFormat::Json => {
            let rules: Vec<_> = rules.iter().map(|rule| explain::to_json(book, rule)).collect();
            json_text(&rules)?
        }
        RulesFormat::Markdown => {
            let pages: Vec<_> = rules.iter().map(|rule| markdown::render(book, rule)).collect();
            pages.join("\n---\n\n")
        }
    })
}

fn see_also(book: &RuleBook, taker: RuleTaker<'_>, event: &str) -> String {
    if taker.channel.is_some() {
        return String::new();
    }
    let channels = takers(book).filter(|other| {
        let is_ours = other.service.name == taker.service.name && other.channel.is_some();
        is_ours && other.rule(book, event).is_some()
    });
    let names: Vec<String> = channels.map(RuleTaker::name).collect();
    if names.is_empty() { String::new() } else { format!("\nIt also goes to {}.\n", names.join(" and ")) }
}

fn not_subscribed(book: &RuleBook, taker: RuleTaker<'_>, event: &str) -> String {
    let others: Vec<String> =
        takers(book).filter(|other| other.rule(book, event).is_some()).map(RuleTaker::name).collect();
    let who = match others.as_slice() {
        [] => "no service does: the event would be unrouted".to_owned(),
        [one] => format!("{one} does"),
        more => format!("{} do", more.join(", ")),
    };
    // A service's channels often take the same events.
    let mut own: Vec<String> = Vec::new();
    for rule in taker.rules(book) {
        let pattern = rule.row.pattern.value.to_string();
        if !own.contains(&pattern) {
            own.push(pattern);
        }
    }
    // If no service takes it, suggest any type of the book.
    let near = if others.is_empty() {
        nearest(event, book.sections().rows().map(|(_, _, row)| row.pattern.value.as_str()))
    } else {
        nearest(event, own.iter().map(String::as_str))
    };
    let near = near.map(|near| format!("\n  did you mean `{near}`?")).unwrap_or_default();
    let own = format!("it subscribes to {}", own.join(", "));
    format!("{} does not subscribe to `{event}`; {who}{near}\n  {own}", taker.name())
}
