//! The story of the demo: something breaks, see why, fix it, replay, and nothing is lost.

use serde::Serialize;
use utoipa::ToSchema;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DemoFacts {
    /// Dead letters of the broken service, including those being replayed.
    pub(crate) letters: u64,
    /// The user has seen the cause.
    pub(crate) looked: bool,
    /// The service works again.
    pub(crate) fixed: bool,
    /// A replay has begun since.
    pub(crate) replayed: bool,
}

/// One step of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DemoStep)]
pub(crate) struct DemoStep {
    /// Title.
    pub(crate) title: &'static str,
    /// What happens, or what to do.
    pub(crate) text: &'static str,
    /// The page that shows it.
    pub(crate) page: &'static str,
    /// The same in a terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<&'static str>,
    /// An action of this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) act: Option<DemoButton>,
    /// Progress of the step.
    pub(crate) state: DemoStepState,
}

/// A button.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DemoAct)]
pub(crate) struct DemoButton {
    /// Last segment of the path to post to.
    pub(crate) act: &'static str,
    /// Text of the button.
    pub(crate) label: &'static str,
}

/// Progress of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = DemoStepState)]
pub(crate) enum DemoStepState {
    /// Done.
    Done,
    /// Next.
    Now,
    /// Later.
    Later,
}

/// All steps before the first open one are done.
pub(crate) fn steps(facts: &DemoFacts) -> Vec<DemoStep> {
    let DemoFacts { letters, looked, fixed, replayed } = *facts;
    let broke = letters > 0 || fixed;
    #[rustfmt::skip]
    let story = [
        (broke, "Something breaks",
            "The last deploy of `invoicing` rejects orders from the EU with 422. A retry cannot help, so none is made: each order becomes a dead letter, and all other deliveries continue.",
            "#/services/invoicing", Some("redrive status"), None),
        (broke && (looked || fixed), "See why",
            "Dead letters with the same cause form one failure group, however many there are. Open the group and one of its dead letters: it shows the attempt, the response of the service, and the line of the rule book that decided.",
            "#/groups", Some("redrive dlq groups"), Some(DemoButton { act: "look", label: "I have seen why" })),
        (fixed, "Fix it",
            "Deploy the release of `invoicing` that accepts a VAT id.",
            "#/services/invoicing", None, Some(DemoButton { act: "fix", label: "Deploy the fix" })),
        (fixed && replayed && letters == 0, "Replay",
            "Replay the group: a dry run first, then one dead letter as a canary, then ten, then the rest, in order and at a limited rate. If a replay stopped before the fix, resume it; a dead letter that failed a replay is poison, so tick \"Include poison\" to send it again.",
            "#/groups", Some("redrive dlq replay --service invoicing --canary"), None),
        (fixed && replayed && letters == 0, "Nothing is lost",
            "Every failed order has been delivered, with a full history of its attempts.",
            "#/deliveries", Some("redrive why --last"), Some(DemoButton { act: "break", label: "Break it again" })),
    ];
    let done = story.iter().take_while(|(is_done, ..)| *is_done).count();
    let state = |place| match place {
        _ if place < done => DemoStepState::Done,
        _ if place == done => DemoStepState::Now,
        _ => DemoStepState::Later,
    };
    let step = |(place, (_, title, text, page, command, act))| DemoStep {
        title,
        text,
        page,
        command,
        act,
        state: state(place),
    };
    story.into_iter().enumerate().map(step).collect()
}

pub(crate) fn steps_done(steps: &[DemoStep]) -> usize {
    steps.iter().filter(|step| step.state == DemoStepState::Done).count()
}

/// How many steps were printed.
#[derive(Debug, Default)]
pub(crate) struct DemoProgress {
    printed: usize,
}

impl DemoProgress {
    /// The steps to print now; none while the facts are unknown.
    pub(crate) fn advance(&mut self, facts: Option<&DemoFacts>) -> Vec<DemoStep> {
        let Some(facts) = facts else { return Vec::new() };
        let steps = steps(facts);
        // A story that restarted is printed again.
        self.printed = self.printed.min(steps_done(&steps) + 1);
        let due = steps.into_iter().skip(self.printed).take_while(|step| step.state != DemoStepState::Later);
        let due: Vec<DemoStep> = due.collect();
        self.printed += due.len();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_goes_on_step_by_step() {
        let begin = DemoFacts { letters: 0, looked: false, fixed: false, replayed: false };
        #[rustfmt::skip]
        let cases = [
            ("nothing has happened",            begin,                                              0),
            ("it broke",                        DemoFacts { letters: 3, ..begin },                      1),
            ("the cause was seen",                 DemoFacts { letters: 3, looked: true, ..begin },        2),
            ("fixed without a look",           DemoFacts { letters: 3, fixed: true, ..begin },        3),
            ("a replay runs, or poison is left", DemoFacts { letters: 3, fixed: true, replayed: true, ..begin }, 3),
            ("all of it arrived",               DemoFacts { fixed: true, replayed: true, ..begin },    5),
            ("no replay, so nothing came back", DemoFacts { fixed: true, ..begin },                    3),
        ];
        for (name, facts, done) in cases {
            let steps = steps(&facts);
            assert_eq!(steps_done(&steps), done, "{name}");
            let next = steps.iter().filter(|step| step.state == DemoStepState::Now).count();
            assert_eq!(next, usize::from(done < steps.len()), "{name}: one comes next, until all are done");
        }
    }

    #[test]
    fn each_step_is_printed_once_though_the_facts_are_unknown_at_times() {
        let begin = DemoFacts { letters: 0, looked: false, fixed: false, replayed: false };
        let broke = DemoFacts { letters: 3, ..begin };
        let fixed = DemoFacts { fixed: true, ..broke };
        #[rustfmt::skip]
        let looks = [
            ("it begins",        Some(begin),  vec!["Something breaks"]),
            ("nothing new",      Some(begin),  vec![]),
            ("facts unknown",    None,         vec![]),
            ("it broke",         Some(broke),  vec!["See why"]),
            ("facts unknown",    None,         vec![]),
            ("it is fixed",     Some(fixed), vec!["Fix it", "Replay"]),
            ("it breaks anew",   Some(broke),  vec![]),
            ("and is fixed",    Some(fixed), vec!["Fix it", "Replay"]),
        ];
        let mut progress = DemoProgress::default();
        for (name, facts, expected) in looks {
            let printed: Vec<&str> = progress.advance(facts.as_ref()).iter().map(|step| step.title).collect();
            assert_eq!(printed, expected, "{name}");
        }
    }
}
