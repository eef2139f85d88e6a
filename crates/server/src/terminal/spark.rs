//! Numbers over time in the space of a word.

const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Zero, which even the lowest step would hide.
const NOTHING: char = '·';

pub(crate) fn spark(counts: &[u64]) -> String {
    spark_up_to(counts, counts.iter().copied().max().unwrap_or(0))
}

/// Scaled to `most`, so that two series can be compared.
pub(crate) fn spark_up_to(counts: &[u64], most: u64) -> String {
    let step = |count: &u64| match count {
        0 => NOTHING,
        count => {
            let height = (u128::from(*count) * STEPS.len() as u128).div_ceil(u128::from(most));
            STEPS[usize::try_from(height).expect("no count is above the most") - 1]
        }
    };
    counts.iter().map(step).collect()
}

/// Sums of `each` numbers, aligned to the end.
pub(crate) fn sums(counts: &[u64], each: usize) -> Vec<u64> {
    let mut sums: Vec<u64> = counts.rchunks(each).map(|chunk| chunk.iter().sum()).collect();
    sums.reverse();
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_is_seen_at_a_glance() {
        #[rustfmt::skip]
        let cases: [(&str, &[u64], &str); 6] = [
            ("nothing",       &[],                            ""),
            ("all quiet",     &[0, 0, 0],                     "···"),
            ("one",           &[0, 1, 0],                     "·█·"),
            ("a burst",       &[0, 1, 100, 3],                "·▁█▁"),
            ("growing",       &[1, 2, 3, 4, 5, 6, 7, 8],      "▁▂▃▄▅▆▇█"),
            ("more than many", &[u64::MAX, 1],                "█▁"),
        ];
        for (name, counts, expected) in cases {
            assert_eq!(spark(counts), expected, "{name}");
        }
        assert_eq!(spark_up_to(&[4, 8], 16), "▂▄", "beside something larger");
        assert_eq!(sums(&[1, 2, 3, 4, 5], 2), [1, 5, 9]);
    }
}
