//! A change to a rule book as a part of one: only the keys that change, where they stand.
//!
//! Putting it into the book means the same for people and for programs: a key that is there gets the new
//! value, one that is not is added; a row of `events` is found by its type, and all other lists grow.

use std::fmt::{self, Display};

use super::evidence::Evidence;
use redrive_core::book::model::{At, BreakerEntry, Layer, ReactionName, Sections};
use redrive_core::book::resolve::{Level, Resolved};
use redrive_core::ids::{BreakerName, DependencyName};
use redrive_core::policy::breaker::{BreakerSettings, Trip};
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::NamedPolicy;
use redrive_core::text::show_duration;

/// A part of a rule book.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    root: Vec<(String, Tree)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tree {
    /// A value as it is written.
    Value(String),
    /// A value that stays as it is and must be said beside one that changes.
    Kept(String),
    Map(Vec<(String, Tree)>),
    /// Rows of these event types, or new ones.
    Rows(Vec<Vec<(String, Tree)>>),
    /// Items that are added to a list, each as it is written.
    Items(Vec<String>),
}

/// A place in the book, from its root.
pub(super) type Path = Vec<Step>;

/// One step of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    /// The row of `events` with that pattern; the last step but for keys of the row.
    Row(String),
}

/// Keys one below the other.
pub(super) fn keys(keys: &[&str]) -> Path {
    keys.iter().map(|key| Step::Key((*key).to_owned())).collect()
}

/// The place of a level as seen from a row. What stands above all services is stated anew for the one that
/// suffers, so that no other is touched.
pub(super) fn place_of(rule: &Resolved<'_>, level: Level) -> Path {
    let mut path = keys(&["services", rule.service.name.as_str()]);
    let channel = rule.channel.map(|channel| channel.name.as_str());
    match level {
        Level::Row => {
            path.extend(channel.into_iter().flat_map(|channel| keys(&["channels", channel])));
            path.extend(keys(&["events"]));
            path.push(Step::Row(rule.row.pattern.value.as_str().to_owned()));
        }
        Level::Channel => path.extend(channel.into_iter().flat_map(|channel| keys(&["channels", channel]))),
        Level::Dependency => return keys(&["dependencies", rule.dependency.value.as_str()]),
        Level::Service | Level::Kind | Level::Defaults | Level::BuiltIn => {}
    }
    path
}

impl Change {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Sets a key at a place.
    pub(super) fn set(mut self, place: &Path, key: &str, value: impl Display) -> Self {
        put(&mut self.root, place, key, Tree::Value(value.to_string()));
        self
    }

    /// Sets keys at a place.
    fn set_all(self, place: &Path, values: &[(&str, String)]) -> Self {
        values.iter().fold(self, |change, (key, value)| change.set(place, key, value))
    }

    /// Sets keys at a place to what they are: a thing that is stated anew must say them.
    fn keep_all(mut self, place: &Path, values: &[(&str, String)]) -> Self {
        for (key, value) in values {
            put(&mut self.root, place, key, Tree::Kept(value.clone()));
        }
        self
    }

    /// Whether nothing changes.
    pub(super) fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// Both changes in one; the key that they disagree about, if there is one.
    pub(super) fn merged(&self, other: &Self) -> Result<Self, String> {
        let mut root = self.root.clone();
        merge(&mut root, &other.root)?;
        Ok(Self { root })
    }

    /// Whether there is a key of which both say something.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        overlap(&self.root, &other.root)
    }

    /// Adds an item to the list under a key at a place.
    pub(super) fn add(mut self, place: &Path, key: &str, item: impl Display) -> Self {
        put(&mut self.root, place, key, Tree::Items(vec![item.to_string()]));
        self
    }

    /// Gives a dependency a value, whether the book declares it or not.
    pub(super) fn of_dependency(
        self,
        evidence: &Evidence,
        rule: &Resolved<'_>,
        key: &str,
        value: impl Display,
    ) -> Self {
        let name = &rule.dependency.value;
        let declared = evidence.book.sections().dependencies.contains_key(name);
        let (path, change) = match (declared, rule.channel) {
            (false, Some(channel)) if name.as_str().contains('/') => {
                // Such a name is the target's own, and cannot stand in a book.
                let new = fit(name);
                let place =
                    keys(&["services", rule.service.name.as_str(), "channels", channel.name.as_str()]);
                (keys(&["dependencies", &new]), self.set(&place, "depends_on", quoted(&new)))
            }
            _ => (keys(&["dependencies", name.as_str()]), self),
        };
        let change = if declared { change } else { change.set(&path, "kind", rule.kind) };
        change.set(&path, key, value)
    }

    /// Changes the policy that a row retries by: in place if it is the book's own, else as a new one of the
    /// service that extends it.
    pub(super) fn of_policy(
        self,
        evidence: &Evidence,
        rule: &Resolved<'_>,
        policy: &NamedPolicy,
        values: &[(&str, String)],
    ) -> Self {
        let is_own = evidence.book.sections().policies.contains_key(&policy.name);
        let name = if is_own { policy.name.to_string() } else { format!("{}-retry", rule.service.name) };
        let place = keys(&["retry_policies", &name]);
        let mut change = self;
        if !is_own {
            change = change.set(&place, "from", policy.name.as_str());
        }
        for (key, value) in values {
            change = change.set(&place, key, value);
        }
        if is_own {
            return change;
        }
        let reaction = rule.reaction_to(Category::Transient);
        let mut place = place_of(rule, reaction.origin.level);
        let is_by_policy = matches!(reaction.value, ReactionName::Policy(_));
        let span = reaction.origin.span.filter(|_| reaction.origin.level < Level::Kind);
        let is_short = span.is_none_or(|span| is_written_as(evidence, span.start, "retry"));
        if !is_by_policy || is_short {
            return change.set(&place, "retry", quoted(&name));
        }
        place.extend(keys(&["on_failure"]));
        change.set(&place, "transient", quoted(&name))
    }

    /// Changes the breaker of a row's dependency: in place if it is the book's own and nobody else's, else as
    /// a new one that differs by these.
    pub(super) fn of_breaker(
        self,
        evidence: &Evidence,
        rule: &Resolved<'_>,
        values: &[(&str, String)],
    ) -> Self {
        if let Some((name, _)) = sole_breaker(evidence, rule) {
            return self.set_all(&keys(&["breakers", name.as_str()]), values);
        }
        let sections = evidence.book.sections();
        let name = new_breaker(sections, &rule.dependency.value);
        let place = keys(&["breakers", &name]);
        let base = rule.rule.breaker.as_ref();
        let shared =
            base.and_then(|base| base.name.as_ref()).filter(|name| sections.breakers.contains_key(*name));
        let mut change = self;
        if let Some(shared) = shared {
            change = change.set(&place, "from", quoted(shared.as_str()));
        } else if let Some(base) = base {
            let kept = settings(&base.settings).into_iter();
            let kept = kept.filter(|(key, _)| values.iter().all(|(changed, _)| changed != key));
            change = change.keep_all(&place, &kept.collect::<Vec<_>>());
        }
        let change = change.set_all(&place, values);
        let declared = sections.dependencies.contains_key(&rule.dependency.value);
        let level = match rule.breaker_origin.level {
            Level::Row | Level::Channel | Level::Service => rule.breaker_origin.level,
            _ if declared => Level::Dependency,
            _ => Level::Service,
        };
        change.set(&place_of(rule, level), "breaker", quoted(&name))
    }
}

/// The line that a change to the breaker of a row's dependency is about: where the breaker stands if it is
/// changed in place, else where it is named.
pub(super) fn breaker_line(evidence: &Evidence, rule: &Resolved<'_>) -> Option<u32> {
    match sole_breaker(evidence, rule) {
        Some((_, entry)) => Some(entry.span.position.line),
        None => rule.breaker_origin.position().map(|position| position.line),
    }
}

/// The breaker of a row's dependency, if it is one of the book that no other dependency goes by.
fn sole_breaker<'a>(
    evidence: &'a Evidence,
    rule: &Resolved<'_>,
) -> Option<(&'a BreakerName, &'a At<BreakerEntry>)> {
    let sections = evidence.book.sections();
    let own = rule.rule.breaker.as_ref()?.name.as_ref()?;
    let (name, entry) = sections.breakers.get_key_value(own)?;
    let is_extended = sections.breakers.values().any(|other| other.value.from.as_ref() == Some(name));
    let of_others = sections.dependencies.iter().filter(|(other, _)| **other != rule.dependency.value);
    let is_named = |layer: &Layer| layer.breaker.as_ref().is_some_and(|at| at.value.as_ref() == Some(name));
    let is_of_others = of_others.into_iter().any(|(_, other)| is_named(&other.layer));
    let is_met_elsewhere = sections.rows().any(|(service, channel, row)| {
        let other = sections.resolve(service, channel, row);
        let breaker = other.rule.breaker.as_ref().and_then(|breaker| breaker.name.as_ref());
        other.dependency.value != rule.dependency.value && breaker == Some(name)
    });
    (!is_extended && !is_of_others && !is_met_elsewhere).then_some((name, entry))
}

/// A name for a breaker of a dependency's own that the book does not have yet.
fn new_breaker(sections: &Sections, dependency: &DependencyName) -> String {
    let name = format!("{}-breaker", fit(dependency));
    let is_free = |name: &String| !sections.breakers.keys().any(|known| known.as_str() == name);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name)
}

/// The settings of a breaker as a book states them.
fn settings(settings: &BreakerSettings) -> Vec<(&'static str, String)> {
    vec![
        ("trip", trip(settings.trip())),
        ("open", show_duration(settings.open())),
        ("probes", settings.probes().to_string()),
        ("close_after", settings.close_after().to_string()),
    ]
}

/// A trip as a book states it.
pub(super) fn trip(trip: Trip) -> String {
    match trip {
        Trip::Consecutive(failures) => format!("{{ consecutive: {failures} }}"),
        Trip::Failures { count, within } => {
            format!("{{ failures: {count}, within: {} }}", show_duration(within))
        }
        Trip::FailureRate { share, of_at_least, within } => format!(
            "{{ failure_rate: {share}, of_at_least: {of_at_least}, within: {} }}",
            show_duration(within)
        ),
    }
}

/// A name of a dependency that a book can declare.
fn fit(name: &DependencyName) -> String {
    name.as_str().replace('/', "-")
}

/// Whether the value at that place of the text stands under that key.
fn is_written_as(evidence: &Evidence, start: u32, key: &str) -> bool {
    let before = evidence.text.as_deref().and_then(|text| text.get(..start as usize));
    before.is_none_or(|before| {
        let before = before.trim_end_matches([' ', '"', '\'']);
        before.strip_suffix(':').is_some_and(|before| before.trim_end().ends_with(key))
    })
}

/// A text as YAML has it: in quotes if it could be read as something else.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let begins_well = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let is_word = !matches!(text, "null" | "true" | "false");
    if begins_well && is_word && text.chars().all(is_plain) {
        return text.to_owned();
    }
    serde_json::Value::from(text).to_string()
}

/// The same for a key, which is a text whatever it looks like.
fn quoted_key(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let begins_well = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    if begins_well && text.chars().all(is_plain) { text.to_owned() } else { quoted(text) }
}

fn put(map: &mut Vec<(String, Tree)>, place: &[Step], key: &str, value: Tree) {
    let Some((first, rest)) = place.split_first() else {
        match (map.iter_mut().find(|(name, _)| name == key), value) {
            (Some((_, Tree::Items(items))), Tree::Items(more)) => items.extend(more),
            (Some((_, known)), value) => *known = value,
            (None, value) => map.push((key.to_owned(), value)),
        }
        return;
    };
    let Step::Key(name) = first else {
        unreachable!("a row stands below `events`, which looks one step ahead")
    };
    let row = match rest.first() {
        Some(Step::Row(pattern)) => Some(pattern),
        Some(Step::Key(_)) | None => None,
    };
    if !map.iter().any(|(known, _)| known == name) {
        let inside = match row {
            Some(_) => Tree::Rows(Vec::new()),
            None => Tree::Map(Vec::new()),
        };
        map.push((name.clone(), inside));
    }
    let inside = map.iter_mut().find(|(known, _)| known == name).map(|(_, inside)| inside);
    match (inside, row, rest) {
        (Some(Tree::Rows(rows)), Some(pattern), [_, rest @ ..]) => {
            let own = ("type".to_owned(), Tree::Value(quoted(pattern)));
            let place = rows.iter().position(|row| row.first() == Some(&own)).unwrap_or_else(|| {
                rows.push(vec![own]);
                rows.len() - 1
            });
            put(&mut rows[place], rest, key, value);
        }
        (Some(Tree::Map(inside)), _, rest) => put(inside, rest, key, value),
        (Some(Tree::Rows(_) | Tree::Value(_) | Tree::Kept(_) | Tree::Items(_)) | None, ..) => {
            unreachable!("a change says one thing of a place")
        }
    }
}

/// Puts what one map says into another; the key that they disagree about, if there is one.
fn merge(into: &mut Vec<(String, Tree)>, from: &[(String, Tree)]) -> Result<(), String> {
    for (key, more) in from {
        let Some((_, known)) = into.iter_mut().find(|(known, _)| known == key) else {
            into.push((key.clone(), more.clone()));
            continue;
        };
        match (known, more) {
            (Tree::Map(known), Tree::Map(more)) => merge(known, more)?,
            (Tree::Rows(known), Tree::Rows(more)) => {
                for row in more {
                    match known.iter_mut().find(|known| known.first() == row.first()) {
                        Some(known) => merge(known, row)?,
                        None => known.push(row.clone()),
                    }
                }
            }
            (Tree::Items(known), Tree::Items(more)) => {
                let new: Vec<_> = more.iter().filter(|item| !known.contains(item)).cloned().collect();
                known.extend(new);
            }
            (Tree::Value(_), Tree::Kept(_)) => {}
            (known @ Tree::Kept(_), Tree::Value(_)) => *known = more.clone(),
            (known, more) if *known == *more => {}
            _ => return Err(key.clone()),
        }
    }
    Ok(())
}

/// Whether there is a key of which both maps say something.
fn overlap(one: &[(String, Tree)], other: &[(String, Tree)]) -> bool {
    let is_shared = |one: &Tree, other: &Tree| match (one, other) {
        (Tree::Map(one), Tree::Map(other)) => overlap(one, other),
        (Tree::Rows(one), Tree::Rows(other)) => one.iter().any(|row| {
            let same = other.iter().find(|other| other.first() == row.first());
            same.is_some_and(|same| overlap(&row[1..], &same[1..]))
        }),
        _ => true,
    };
    one.iter().any(|(key, tree)| other.iter().any(|(known, other)| known == key && is_shared(tree, other)))
}

/// YAML.
impl Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_map(f, &self.root, 0)
    }
}

fn write_map(f: &mut fmt::Formatter<'_>, map: &[(String, Tree)], depth: usize) -> fmt::Result {
    for (key, value) in map {
        write!(f, "{:depth$}{}:", "", quoted_key(key))?;
        write_value(f, value, depth)?;
    }
    Ok(())
}

fn write_value(f: &mut fmt::Formatter<'_>, value: &Tree, depth: usize) -> fmt::Result {
    match value {
        Tree::Value(value) | Tree::Kept(value) => writeln!(f, " {value}"),
        Tree::Map(inside) => {
            writeln!(f)?;
            write_map(f, inside, depth + 2)
        }
        Tree::Rows(rows) => {
            writeln!(f)?;
            for (place, (key, value)) in rows.iter().flat_map(|row| row.iter().enumerate()) {
                let mark = if place == 0 { "- " } else { "  " };
                write!(f, "{:depth$}  {mark}{}:", "", quoted_key(key))?;
                write_value(f, value, depth + 4)?;
            }
            Ok(())
        }
        Tree::Items(items) => {
            writeln!(f)?;
            items.iter().try_for_each(|item| writeln!(f, "{:depth$}  - {item}", ""))
        }
    }
}
