//! Settings of a dependency for any caller: its retry budget, and the rule for a program's own calls.

use super::timeouts::{CallTarget, timeouts};
use super::{Levels, ResolvedValue, RuleLevel};
use crate::book::model::{Layer, Sections};
use crate::event::copy_rule::CopyRule;
use crate::ids::DependencyName;
use crate::limits;
use crate::policy::budget::BudgetSettings;
use crate::policy::catalog::DependencyKind;
use crate::policy::rule::{Rule, WhenOpen};

impl Sections {
    /// `None` if retries are unlimited.
    #[must_use]
    pub fn retry_budget(&self, dependency: &DependencyName) -> Option<ResolvedValue<BudgetSettings>> {
        let entry = self.dependencies.get(dependency);
        let own = entry.and_then(|entry| entry.retry_budget.as_ref());
        let own = own.map(|at| ResolvedValue::stated(RuleLevel::Dependency, at));
        own.or_else(|| Some(ResolvedValue::stated(RuleLevel::Defaults, self.retry_budget.as_ref()?)))
    }

    /// For direct calls without a service: the dependency's settings, its kind, the defaults. `None` for an
    /// unknown dependency.
    #[must_use]
    pub fn dependency_rule(&self, name: &str) -> Option<Rule> {
        let (name, entry) = self.dependencies.get_key_value(name)?;
        Some(self.direct_rule(name, Some(&entry.layer), entry.kind))
    }

    /// For connecting to a source: the rule of its `depends_on`, else of an implicit dependency. `None` for an
    /// unknown source.
    #[must_use]
    pub fn source_rule(&self, name: &str) -> Option<Rule> {
        let source = &self.sources.get(name)?.value;
        let named = source.depends_on.as_ref().and_then(|at| self.dependency_rule(at.value.as_str()));
        let own = || {
            let own_name = DependencyName::new(name).expect("names of sources are names of dependencies");
            self.direct_rule(
                &own_name,
                None,
                source.endpoint.connector.dependency.unwrap_or(DependencyKind::Log),
            )
        };
        Some(named.unwrap_or_else(own))
    }

    fn direct_rule(&self, name: &DependencyName, own: Option<&Layer>, kind: DependencyKind) -> Rule {
        let own = own.map(|layer| (RuleLevel::Dependency, layer));
        let levels = Levels(own.into_iter().chain([(RuleLevel::Defaults, &self.defaults)]).collect());
        let owner = CallTarget {
            level: RuleLevel::Dependency,
            process: kind == DependencyKind::Process,
            time_limit: None,
            usual: None,
        };
        let (breaker, _) = self.breaker(&levels, kind);
        let classify =
            levels.0.iter().flat_map(|(_, layer)| layer.classify.iter().map(|at| at.value.clone()));
        Rule {
            classify: classify.collect::<Vec<_>>().into(),
            reactions: self.compile(&Self::reactions(&levels), &levels),
            dependency: name.clone(),
            breaker,
            when_open: levels.or(|l| &l.when_open, WhenOpen::Hold).value,
            hold_max: levels.or(|l| &l.hold_max, limits::HOLD_MAX_DEFAULT).value,
            deadline: levels.find(|l| &l.deadline).map(|known| known.value),
            fatal_after: levels.find(|l| &l.fatal_after).map(|known| known.value),
            timeouts: timeouts(&levels, &owner).limits(),
            copies: CopyRule::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::book::connectors::built_in;
    use crate::book::read;
    use crate::ids::DependencyName;
    use crate::policy::category::Category;
    use crate::policy::rule::WhenOpen;

    const BOOK: &str = "\
version: 1
defaults: { retry: patient, deadline: 9s, hold_max: 1m }
dependencies:
  ntfy: { kind: ntfy, timeout: 2s, deadline: 4s, when_open: dead-letter }
  plain: { kind: webhook }
  worker: { kind: process }
services:
  notes: { target: { http: \"http://127.0.0.1:9\" }, depends_on: ntfy, events: [note.made] }
";

    #[test]
    fn values_fall_from_the_dependency_over_its_kind_to_the_defaults() {
        let book = read(BOOK, built_in()).book.expect("a sound book");
        let ntfy = book.dependency_rule("ntfy").expect("the book has it");
        let policy = |rule: &crate::policy::rule::Rule| rule.reactions.policies()[0].name.to_string();
        assert_eq!(policy(&ntfy), "patient", "the defaults state it");
        assert_eq!(ntfy.timeouts.whole.first, Duration::from_secs(2), "the dependency states it");
        assert_eq!(ntfy.deadline, Some(Duration::from_secs(4)), "the dependency comes before the defaults");
        assert_eq!(ntfy.hold_max, Duration::from_secs(60), "the defaults state it");
        assert_eq!(ntfy.when_open, WhenOpen::DeadLetter);
        let breaker = ntfy.breaker.as_ref().expect("the kind has one");
        assert_eq!(breaker.settings.open(), Duration::from_secs(30));
        let plain = book.dependency_rule("plain").expect("the book has it");
        assert_eq!(plain.timeouts.whole.first, Duration::from_secs(10), "built in");
        assert_eq!(plain.timeouts.category, Category::Transient);
        let worker = book.dependency_rule("worker").expect("the book has it");
        assert_eq!(worker.timeouts.category, Category::Permanent, "a run past its limit is ended for good");
        assert!(book.dependency_rule("smtp").is_none(), "it is not in the book");
    }

    #[test]
    fn a_budget_is_the_dependencys_or_else_the_defaults() {
        let with = |defaults: &str, own: &str| {
            let text = format!(
                "version: 1\ndefaults: {{ {defaults} }}\ndependencies: {{ d: {{ kind: webhook{own} }} }}\n"
            );
            let book = read(&text, built_in()).book.expect("a sound book");
            let budget = book.retry_budget(&DependencyName::new("d").expect("a name"));
            budget.map(|budget| (budget.share.to_string(), budget.at_least.to_string()))
        };
        let told = |share: &str, rate: &str| Some((share.to_owned(), rate.to_owned()));
        assert_eq!(with("", ""), None);
        assert_eq!(with("retry_budget: 20%", ""), told("20%", "1/s"));
        assert_eq!(with("retry_budget: 20%", ", retry_budget: 5%"), told("5%", "1/s"));
        assert_eq!(with("", ", retry_budget: { share: 5%, at_least: 30/m }"), told("5%", "30/m"));
    }

    #[test]
    fn a_row_that_says_nothing_of_its_own_has_the_same_rule() {
        let book = read(BOOK, built_in()).book.expect("a sound book");
        let of_row = book.rule("notes", None, "note.made").expect("the row");
        assert_eq!(book.dependency_rule("ntfy").as_ref(), Some(&**of_row));
    }
}
