//! Lines that would repeat for many dependencies, put together: all their names, and what holds for the worst.

use super::candidates::{Candidate, merged};
use super::{Finding, Weight};

/// What is found of one dependency.
pub(super) struct Said {
    pub(super) code: &'static str,
    pub(super) weight: Weight,
    /// Of which dependency.
    pub(super) of: String,
    /// What it is, as it goes after its name.
    pub(super) text: String,
    /// How much of it there is, beside others of the same code.
    pub(super) size: f64,
    pub(super) candidates: Vec<Candidate>,
}

/// One finding for each code and weight, in the order in which they were found first.
pub(super) fn together(said: Vec<Said>) -> Vec<Finding> {
    let mut groups: Vec<Vec<Said>> = Vec::new();
    for one in said {
        match groups.iter_mut().find(|group| (group[0].code, group[0].weight) == (one.code, one.weight)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups.into_iter().map(joined).collect()
}

fn joined(mut group: Vec<Said>) -> Finding {
    // Sorting is stable, so that what is equally bad stays in its order.
    group.sort_by(|one, other| other.size.total_cmp(&one.size));
    let worst = &group[0];
    let at_worst = if group.len() > 1 { "at worst " } else { "" };
    let text = format!("{}: {at_worst}{}", names(group.iter().map(|said| said.of.as_str())), worst.text);
    let (code, weight) = (worst.code, worst.weight);
    let candidates = merged(group.into_iter().flat_map(|said| said.candidates));
    Finding { code, weight, text, candidates }
}

/// So many are named one by one.
const NAMED_MAX: usize = 3;

/// "`a`, `b` and 3 others", each once.
pub(super) fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = Vec::new();
    for name in all {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match known.as_slice() {
        [first @ .., last] if (1..NAMED_MAX).contains(&first.len()) => {
            format!("{} and `{last}`", quoted(first))
        }
        many if many.len() > NAMED_MAX => {
            format!("{} and {} others", quoted(&many[..NAMED_MAX - 1]), many.len() + 1 - NAMED_MAX)
        }
        few => quoted(few),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_as_a_person_would() {
        #[rustfmt::skip]
        let cases: [(&[&str], &str); 6] = [
            (&[],                         ""),
            (&["a"],                      "`a`"),
            (&["a", "a", "b"],            "`a` and `b`"),
            (&["a", "b", "c"],            "`a`, `b` and `c`"),
            (&["a", "b", "c", "d"],       "`a`, `b` and 2 others"),
            (&["a", "b", "c", "d", "e"],  "`a`, `b` and 3 others"),
        ];
        for (all, expected) in cases {
            assert_eq!(names(all.iter().copied()), expected);
        }
    }

    #[test]
    fn what_repeats_is_told_once_with_the_worst() {
        let said = |of: &str, size: f64, weight| Said {
            code: "amplified",
            weight,
            of: of.to_owned(),
            text: format!("{size} attempts"),
            size,
            candidates: Vec::new(),
        };
        let all =
            vec![said("a", 2.0, Weight::Fair), said("b", 4.0, Weight::Bad), said("c", 3.0, Weight::Fair)];
        let told: Vec<String> = together(all).into_iter().map(|finding| finding.text).collect();
        assert_eq!(told, ["`c` and `a`: at worst 3 attempts", "`b`: 4 attempts"]);
    }
}
