//! Which dead letters the rule book reprocesses automatically: when a dependency recovers, and by schedule.

use std::fmt;

use crate::book::RuleBook;
use crate::engine::QueueName;
use crate::ids::{ChannelName, DependencyName};
use crate::letters::envelope::Tier;
use crate::policy::category::Category;

#[derive(Clone, Copy, Debug)]
pub struct LetterSubject<'a> {
    pub queue: &'a QueueName,
    pub event_type: &'a str,
    pub category: Category,
    pub tier: Tier,
}

/// Why letters are reprocessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion<'a> {
    Recovered(&'a DependencyName),
    /// The cron expression of a rule.
    Cron(&'a str),
}

impl fmt::Display for Occasion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recovered(dependency) => write!(f, "because {dependency} recovered"),
            Self::Cron(cron) => write!(f, "by schedule `{cron}`"),
        }
    }
}

/// How often a letter of that kind may be reprocessed, if the book does so on that occasion; poison never is.
#[must_use]
pub fn times_max(book: &RuleBook, occasion: Occasion<'_>, subject: &LetterSubject<'_>) -> Option<u32> {
    let service = subject.queue.service.as_str();
    let channel = subject.queue.channel.as_ref().map(ChannelName::as_str);
    let rule = book.rule(service, channel, subject.event_type)?;
    let letter = book.letter_rule(service, channel, subject.event_type)?;
    let is_time = match occasion {
        Occasion::Recovered(dependency) => rule.dependency == *dependency,
        Occasion::Cron(cron) => letter.reprocess_cron.as_ref().is_some_and(|own| own.as_str() == cron),
    };
    let comes_back = is_time && subject.tier == Tier::Dead && letter.comes_back(subject.category);
    comes_back.then_some(letter.reprocess_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::connectors::built_in;
    use crate::book::read;
    use crate::ids::ServiceName;

    #[test]
    fn the_book_says_which_letters_come_back() {
        let letters = |word: &str| {
            let text = format!(
                "version: 1\ndependencies: {{ d: {{ kind: webhook }} }}\nservices: {{ s: {{ target: {{ log: stdout }}, depends_on: d, events: [a], dead_letter: {{ {word} }} }} }}\n"
            );
            let reading = read(&text, built_in());
            reading.book.unwrap_or_else(|| panic!("{:#?}", reading.problems))
        };
        let queue = QueueName { service: ServiceName::new("s").expect("a name"), channel: None };
        #[rustfmt::skip]
        let cases = [
            ("by hand",                 "reprocess: manual",                                                   "d", "a", Category::Transient, Tier::Dead,   None),
            ("all of them",             "reprocess: automatic",                                                "d", "a", Category::Permanent, Tier::Dead,   Some(3)),
            ("so many times",           "reprocess: automatic, reprocess_max: 7",                              "d", "a", Category::Transient, Tier::Dead,   Some(7)),
            ("another dependency",      "reprocess: automatic",                                                "e", "a", Category::Transient, Tier::Dead,   None),
            ("poison",                  "reprocess: automatic",                                                "d", "a", Category::Transient, Tier::Poison, None),
            ("a type nobody wants",     "reprocess: automatic",                                                "d", "b", Category::Transient, Tier::Dead,   None),
            ("a category that is named", "reprocess: filtered, reprocess_categories: [transient]",             "d", "a", Category::Transient, Tier::Dead,   Some(3)),
            ("one that is not",         "reprocess: filtered, reprocess_categories: [transient]",              "d", "a", Category::Permanent, Tier::Dead,   None),
        ];
        for (name, word, dependency, event_type, category, tier, expected) in cases {
            let dependency = DependencyName::new(dependency).expect("a name");
            let subject = LetterSubject { queue: &queue, event_type, category, tier };
            let recovered = Occasion::Recovered(&dependency);
            assert_eq!(times_max(&letters(word), recovered, &subject), expected, "{name}");
        }
        let filtered =
            "reprocess: filtered, reprocess_categories: [transient], reprocess_cron: \"0 3 * * *\"";
        #[rustfmt::skip]
        let cases = [
            ("at its time",             filtered,                                                    "0 3 * * *", Category::Transient, Tier::Dead,   Some(3)),
            ("at another time",         filtered,                                                    "0 4 * * *", Category::Transient, Tier::Dead,   None),
            ("not of that category",    filtered,                                                    "0 3 * * *", Category::Permanent, Tier::Dead,   None),
            ("poison",                  filtered,                                                    "0 3 * * *", Category::Transient, Tier::Poison, None),
            ("without a time",          "reprocess: automatic",                                      "0 3 * * *", Category::Transient, Tier::Dead,   None),
            ("by hand",                 "reprocess: manual, reprocess_cron: \"0 3 * * *\"",          "0 3 * * *", Category::Transient, Tier::Dead,   None),
        ];
        for (name, word, cron, category, tier, expected) in cases {
            let subject = LetterSubject { queue: &queue, event_type: "a", category, tier };
            assert_eq!(times_max(&letters(word), Occasion::Cron(cron), &subject), expected, "{name}");
        }
    }
}
