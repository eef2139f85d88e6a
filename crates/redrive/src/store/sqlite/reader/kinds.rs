//! Reads kinds: which of them a filter may find letters of.
//!
//! Kinds are few as a rule, but nothing keeps them from being many; so they are sifted row by row, and only
//! what is asked for is copied.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::book::pattern::EventPattern;
use redrive_core::category::Code;
use redrive_core::engine::QueueName;
use redrive_core::envelope::Tier;
use redrive_core::fingerprint::Fingerprint;
use redrive_core::ids::ChannelName;
use rusqlite::{OptionalExtension, Row};

use super::Look;
use super::delivery::{category, tier};
use crate::store::letter::{KindId, KindView, LetterFilter};
use crate::store::sqlite::encode::time;
use crate::store::sqlite::fault::Fault;
use crate::store::sqlite::rows::text;

/// The columns that [`Kind`] reads.
const COLUMNS: &str = "SELECT id, fingerprint, queue, subscription, event_type, category, code, failure_code,
    tier, count, first_at, last_at, name FROM kinds";

/// All of them.
pub(super) fn all() -> String {
    format!("{COLUMNS} WHERE ?1 IS NOT NULL")
}

/// Those of one cause.
pub(super) fn of_cause() -> String {
    format!("{COLUMNS} WHERE fingerprint = ?1")
}

/// One of them.
pub(super) fn one() -> String {
    format!("{COLUMNS} WHERE id = ?1")
}

/// What a filter says about kinds.
pub(super) struct KindSieve<'a> {
    filter: &'a LetterFilter,
    queues: Option<BTreeSet<i64>>,
    /// The number of the subscription; none if nobody knows that one.
    subscription: Option<Option<i64>>,
}

/// A kind that is being looked at.
#[derive(Clone, Copy)]
pub(super) struct Kind<'a, 'b>(&'a Row<'b>);

impl<'a> Kind<'a, '_> {
    pub(super) fn event_type(self) -> Result<&'a str, Fault> {
        text(self.0, 4)
    }

    fn number(self, column: usize) -> Result<i64, Fault> {
        Ok(self.0.get(column)?)
    }

    pub(super) fn id(self) -> Result<i64, Fault> {
        self.number(0)
    }

    pub(super) fn queue(self) -> Result<i64, Fault> {
        self.number(2)
    }

    pub(super) fn fingerprint(self) -> Result<Fingerprint, Fault> {
        Ok(Fingerprint(self.number(1)?.cast_unsigned()))
    }

    pub(super) fn count(self) -> Result<u64, Fault> {
        Ok(self.number(9)?.cast_unsigned())
    }

    pub(super) fn first_at(self) -> Result<i64, Fault> {
        self.number(10)
    }

    pub(super) fn last_at(self) -> Result<i64, Fault> {
        self.number(11)
    }

    pub(super) fn is_poison(self) -> Result<bool, Fault> {
        Ok(text(self.0, 8)? == Tier::Poison.as_str())
    }

    pub(super) fn view(self, look: &Look<'_>, subscriptions: &Subscriptions) -> Result<KindView, Fault> {
        let subscription = subscriptions.0.get(&self.number(3)?);
        Ok(KindView {
            id: KindId(self.id()?.cast_unsigned()),
            queue: look.queue(self.number(2)?)?.clone(),
            subscription: subscription.ok_or(Fault::unreadable("the name of a subscription"))?.clone(),
            event_type: text(self.0, 4)?.to_owned(),
            category: category(text(self.0, 5)?)?,
            code: Code::reported(text(self.0, 6)?),
            failure_code: Code::reported(text(self.0, 7)?),
            tier: tier(text(self.0, 8)?)?,
            fingerprint: self.fingerprint()?,
            name: self.0.get(12)?,
            count: self.count()?,
            first_at: time(self.first_at()?),
            last_at: time(self.last_at()?),
        })
    }
}

/// The names of subscriptions, by their number.
pub(super) struct Subscriptions(BTreeMap<i64, String>);

impl<'a> KindSieve<'a> {
    pub(super) fn new(look: &Look<'_>, filter: &'a LetterFilter) -> Result<Self, Fault> {
        let by_queue = filter.service.is_some() || filter.channel.is_some();
        let fits = |name: &QueueName| {
            let channel = name.channel.as_ref().map(ChannelName::as_str);
            filter.service.as_ref().is_none_or(|wanted| name.service.as_str() == wanted)
                && filter.channel.as_ref().is_none_or(|wanted| channel == Some(wanted))
        };
        let queues = || look.queues.iter().filter(|(_, name)| fits(name)).map(|(id, _)| *id).collect();
        let subscription = filter.subscription.as_ref().map(|name| look.subscription(name)).transpose()?;
        Ok(Self { filter, queues: by_queue.then(queues), subscription })
    }

    /// Whether letters of any kind may fit.
    pub(super) fn takes_all(filter: &LetterFilter) -> bool {
        let LetterFilter { service, channel, subscription, category, code, .. } = filter;
        let LetterFilter { fingerprint, event_type, tier, kinds, .. } = filter;
        [service, channel, subscription, code].into_iter().all(Option::is_none)
            && (category.is_none() && fingerprint.is_none())
            && (event_type.is_none() && tier.is_none() && kinds.is_none())
    }

    fn takes(&self, Kind(row): Kind<'_, '_>) -> Result<bool, Fault> {
        let LetterFilter { category, code, fingerprint, event_type, tier, kinds, .. } = self.filter;
        let number = |column| row.get::<_, i64>(column);
        let has = |column, wanted: &str| text(row, column).map(|found| found == wanted);
        if self.queues.as_ref().is_some_and(|queues| number(2).is_ok_and(|id| !queues.contains(&id)))
            || self.subscription.is_some_and(|wanted| number(3).is_ok_and(|id| Some(id) != wanted))
            || fingerprint.is_some_and(|wanted| number(1).is_ok_and(|found| found != wanted.0.cast_signed()))
        {
            return Ok(false);
        }
        let fits = |pattern: &EventPattern| text(row, 4).map(|found| pattern.matches(found));
        Ok(event_type.as_ref().map_or(Ok(true), fits)?
            && category.map_or(Ok(true), |wanted| has(5, wanted.as_str()))?
            && code.as_ref().map_or(Ok(true), |wanted| Ok::<_, Fault>(has(6, wanted)? || has(7, wanted)?))?
            && tier.map_or(Ok(true), |wanted| has(8, wanted.as_str()))?
            && kinds
                .as_ref()
                .is_none_or(|kinds| number(0).is_ok_and(|id| kinds.contains(&KindId(id.cast_unsigned())))))
    }
}

impl Look<'_> {
    /// Shows each kind that the filter may find letters of, also those that have none any more.
    pub(super) fn each_kind(
        &self,
        filter: &LetterFilter,
        mut show: impl FnMut(Kind<'_, '_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let sieve = KindSieve::new(self, filter)?;
        let mut through = |sql: &str, key: i64| {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query([key])?;
            while let Some(row) = rows.next()? {
                let kind = Kind(row);
                if sieve.takes(kind)? {
                    show(kind)?;
                }
            }
            Ok(())
        };
        match (&filter.fingerprint, &filter.kinds) {
            (Some(fingerprint), _) => through(&of_cause(), fingerprint.0.cast_signed()),
            (None, Some(kinds)) => kinds.iter().try_for_each(|id| through(&one(), id.0.cast_signed())),
            (None, None) => through(&all(), 0),
        }
    }

    /// The kinds that the filter may find.
    pub(super) fn kinds(&self, filter: &LetterFilter) -> Result<Vec<KindView>, Fault> {
        let subscriptions = self.subscriptions()?;
        let mut kinds = Vec::new();
        self.each_kind(filter, |kind| {
            if kind.count()? > 0 {
                kinds.push(kind.view(self, &subscriptions)?);
            }
            Ok(())
        })?;
        Ok(kinds)
    }

    pub(super) fn subscriptions(&self) -> Result<Subscriptions, Fault> {
        let mut statement = self.connection.prepare_cached("SELECT id, name FROM subscriptions")?;
        let names = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Subscriptions(names.collect::<Result<_, _>>()?))
    }

    fn subscription(&self, name: &str) -> Result<Option<i64>, Fault> {
        let mut statement = self.connection.prepare_cached("SELECT id FROM subscriptions WHERE name = ?1")?;
        Ok(statement.query_row([name], |row| row.get(0)).optional()?)
    }
}
