//! Reads the kinds that a filter may match.
//!
//! Kinds are usually few, but nothing bounds them: SQL filters as much as it can, and only needed columns are
//! read.

use std::cell::RefCell;
use std::collections::BTreeMap;

use redrive_core::book::pattern::EventPattern;
use redrive_core::hash::Map;
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::category::FailureCode;
use rusqlite::Row;
use rusqlite::types::Value;

use super::ReadView;
use crate::store::letter::{KindId, KindView, LetterFilter};
use crate::store::sqlite::encode::time;
use crate::store::sqlite::fault::{SqlFault, SqlResult};
use crate::store::sqlite::rows::{category, text, tier};
use crate::store::sqlite::select::queue_fits;
use crate::store::sqlite::sql::Sql;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KindDetail {
    Cause,
    Counters,
    All,
}

/// The SQL part of a filter on kinds.
pub(super) struct KindQuery<'a> {
    pub(super) sql: String,
    values: Vec<Value>,
    pattern: Option<&'a EventPattern>,
}

impl<'a> KindQuery<'a> {
    pub(super) fn new(
        look: &ReadView<'_>,
        filter: &'a LetterFilter,
        detail: KindDetail,
    ) -> SqlResult<Option<Self>> {
        let pattern = filter.event_type.as_ref().filter(|pattern| !pattern.is_exact());
        let columns = match (detail, pattern) {
            (KindDetail::Cause, None) => "0, fingerprint, count",
            (KindDetail::Cause | KindDetail::Counters, Some(_)) => {
                "id, fingerprint, count, first_at, last_at, event_type"
            }
            (KindDetail::Counters, None) => "id, fingerprint, count, first_at, last_at",
            (KindDetail::All, _) => {
                "id, fingerprint, count, first_at, last_at, event_type, queue, subscription, category, code,
                failure_code, tier, name"
            }
        };
        let sql = format!("SELECT {columns} FROM kinds WHERE count > 0");
        let mut query = Self { sql, values: Vec::new(), pattern };
        if filter.service.is_some() || filter.channel.is_some() {
            let queues = look.queues_of(filter);
            if queues.is_empty() {
                return Ok(None);
            }
            query.sql.push_str(&format!(" AND queue IN ({})", queues.join(", ")));
        }
        if let Some(name) = &filter.subscription {
            let Some(id) = look.subscription(name)? else { return Ok(None) };
            query.and("subscription = ?", id);
        }
        if let Some(name) = &filter.name {
            query.and("name = ?", name.clone());
        }
        if let Some(fingerprint) = filter.fingerprint {
            query.and("fingerprint = ?", fingerprint.0.cast_signed());
        }
        if let Some(pattern) = filter.event_type.as_ref().filter(|pattern| pattern.is_exact()) {
            query.and("event_type = ?", pattern.as_str().to_owned());
        }
        if let Some(category) = filter.category {
            query.and("category = ?", category.as_str().to_owned());
        }
        if let Some(code) = &filter.code {
            query.and("? IN (code, failure_code)", code.clone());
        }
        if let Some(tier) = filter.tier {
            query.and("tier = ?", tier.as_str().to_owned());
        }
        Ok(Some(query))
    }

    fn and(&mut self, condition: &str, value: impl Into<Value>) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.push(value.into());
    }

    pub(super) fn only(&self, id: i64) -> Self {
        let mut query = Self { sql: self.sql.clone(), values: self.values.clone(), pattern: self.pattern };
        query.and("id = ?", id);
        query
    }

    fn each(
        &self,
        look: &ReadView<'_>,
        show: &mut dyn FnMut(KindRow<'_, '_>) -> SqlResult<()>,
    ) -> SqlResult<()> {
        look.connection.each(&self.sql, rusqlite::params_from_iter(&self.values), |row| {
            let kind = KindRow(row);
            let fits = |pattern: &EventPattern| kind.event_type().map(|found| pattern.matches(found));
            if self.pattern.map_or(Ok(true), fits)? { show(kind) } else { Ok(()) }
        })
    }
}

pub(super) fn takes_all(filter: &LetterFilter) -> bool {
    let LetterFilter { service, channel, name, subscription, category, code, .. } = filter;
    let LetterFilter { fingerprint, event_type, tier, kinds, .. } = filter;
    [service, channel, name, subscription, code].into_iter().all(Option::is_none)
        && (category.is_none() && fingerprint.is_none())
        && (event_type.is_none() && tier.is_none() && kinds.is_none())
}

/// Checks kinds one by one and remembers the result.
pub(super) struct KindCache<'a> {
    query: Option<KindQuery<'a>>,
    known: RefCell<Map<i64, bool>>,
}

impl<'a> KindCache<'a> {
    pub(super) fn new(look: &ReadView<'_>, filter: &'a LetterFilter) -> SqlResult<Self> {
        let query = KindQuery::new(look, filter, KindDetail::Counters)?;
        Ok(Self { query, known: RefCell::default() })
    }

    pub(super) fn contain(&self, look: &ReadView<'_>, id: i64) -> SqlResult<bool> {
        if let Some(known) = self.known.borrow().get(&id) {
            return Ok(*known);
        }
        let mut fits = false;
        if let Some(query) = &self.query {
            query.only(id).each(look, &mut |_| {
                fits = true;
                Ok(())
            })?;
        }
        self.known.borrow_mut().insert(id, fits);
        Ok(fits)
    }
}

#[derive(Clone, Copy)]
pub(super) struct KindRow<'a, 'b>(&'a Row<'b>);

impl<'a> KindRow<'a, '_> {
    pub(super) fn event_type(self) -> SqlResult<&'a str> {
        text(self.0, 5)
    }

    fn number(self, column: usize) -> SqlResult<i64> {
        Ok(self.0.get(column)?)
    }

    pub(super) fn id(self) -> SqlResult<i64> {
        self.number(0)
    }

    pub(super) fn queue(self) -> SqlResult<i64> {
        self.number(6)
    }

    pub(super) fn fingerprint(self) -> SqlResult<Fingerprint> {
        Ok(Fingerprint(self.number(1)?.cast_unsigned()))
    }

    pub(super) fn count(self) -> SqlResult<u64> {
        Ok(self.number(2)?.cast_unsigned())
    }

    pub(super) fn first_at(self) -> SqlResult<i64> {
        self.number(3)
    }

    pub(super) fn last_at(self) -> SqlResult<i64> {
        self.number(4)
    }

    pub(super) fn is_poison(self) -> SqlResult<bool> {
        Ok(text(self.0, 11)? == Tier::Poison.as_str())
    }

    pub(super) fn view(self, look: &ReadView<'_>, subscriptions: &Subscriptions) -> SqlResult<KindView> {
        let subscription = subscriptions.0.get(&self.number(7)?);
        Ok(KindView {
            id: KindId(self.id()?.cast_unsigned()),
            queue: look.queue(self.queue()?)?.clone(),
            subscription: subscription.ok_or(SqlFault::unreadable("the name of a subscription"))?.clone(),
            event_type: self.event_type()?.to_owned(),
            category: category(text(self.0, 8)?)?,
            code: FailureCode::reported(text(self.0, 9)?),
            failure_code: FailureCode::reported(text(self.0, 10)?),
            tier: tier(text(self.0, 11)?)?,
            fingerprint: self.fingerprint()?,
            name: self.0.get(12)?,
            count: self.count()?,
            first_at: time(self.first_at()?),
            last_at: time(self.last_at()?),
        })
    }
}

pub(super) struct Subscriptions(BTreeMap<i64, String>);

impl ReadView<'_> {
    /// Shows each kind with letters that the filter may match.
    pub(super) fn each_kind(
        &self,
        filter: &LetterFilter,
        detail: KindDetail,
        mut show: impl FnMut(KindRow<'_, '_>) -> SqlResult<()>,
    ) -> SqlResult<()> {
        let Some(query) = KindQuery::new(self, filter, detail)? else { return Ok(()) };
        match (&filter.kinds, filter.fingerprint) {
            (None, _) => query.each(self, &mut show),
            (Some(kinds), None) => {
                kinds.iter().try_for_each(|id| query.only(id.0.cast_signed()).each(self, &mut show))
            }
            // A cause has few kinds; the list may be long.
            (Some(kinds), Some(_)) => query.each(self, &mut |kind| {
                if kinds.contains(&KindId(kind.id()?.cast_unsigned())) { show(kind) } else { Ok(()) }
            }),
        }
    }

    pub(super) fn kind<T>(
        &self,
        id: i64,
        read: impl FnOnce(KindRow<'_, '_>) -> SqlResult<T>,
    ) -> SqlResult<Option<T>> {
        let any = LetterFilter::default();
        let query = KindQuery::new(self, &any, KindDetail::All)?;
        let Some(query) = query.map(|query| query.only(id)) else { return Ok(None) };
        let (mut read, mut found) = (Some(read), None);
        query.each(self, &mut |kind| {
            found = read.take().map(|read| read(kind)).transpose()?;
            Ok(())
        })?;
        Ok(found)
    }

    fn queues_of(&self, filter: &LetterFilter) -> Vec<String> {
        self.queues
            .iter()
            .filter(|(_, name)| queue_fits(filter, name))
            .map(|(id, _)| id.to_string())
            .collect()
    }

    pub(super) fn kinds(&self, filter: &LetterFilter) -> SqlResult<Vec<KindView>> {
        let subscriptions = self.subscriptions()?;
        let mut kinds = Vec::new();
        self.each_kind(filter, KindDetail::All, |kind| {
            kinds.push(kind.view(self, &subscriptions)?);
            Ok(())
        })?;
        Ok(kinds)
    }

    pub(super) fn subscriptions(&self) -> SqlResult<Subscriptions> {
        let names =
            self.connection.all("SELECT id, name FROM subscriptions", [], |row| Ok(row.try_into()?))?;
        Ok(Subscriptions(names.into_iter().collect()))
    }

    fn subscription(&self, name: &str) -> SqlResult<Option<i64>> {
        self.connection.find("SELECT id FROM subscriptions WHERE name = ?1", [name])
    }
}
