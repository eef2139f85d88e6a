//! Series with a bounded number of steps: when they are full, pairs of steps are merged and each step lasts twice as
//! long.

use std::time::Duration;

use redrive_core::limits;

const STEPS_MAX: usize = limits::SIMULATION_STEPS_MAX;
const _: () = assert!(STEPS_MAX.is_multiple_of(2));
const FIRST_STEP_NANOS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct StepClock {
    step_nanos: u64,
    now: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepChange {
    Same,
    Next,
    /// Steps were merged this many times.
    Folded(u32),
}

impl Default for StepClock {
    fn default() -> Self {
        Self { step_nanos: FIRST_STEP_NANOS, now: 0 }
    }
}

impl StepClock {
    pub(super) const fn step(&self) -> Duration {
        Duration::from_nanos(self.step_nanos)
    }

    pub(super) const fn begun(&self) -> usize {
        self.now + 1
    }

    pub(super) fn advance(&mut self, nanos: u64) -> StepChange {
        let mut folds = 0;
        while nanos / self.step_nanos >= STEPS_MAX as u64 {
            self.step_nanos *= 2;
            folds += 1;
        }
        let now = usize::try_from(nanos / self.step_nanos).expect("less than the most");
        let turn = match (folds, now == self.now) {
            (0, true) => StepChange::Same,
            (0, false) => StepChange::Next,
            (folds, _) => StepChange::Folded(folds),
        };
        self.now = now;
        turn
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct StepSums(Vec<u64>);

impl StepSums {
    pub(super) fn add(&mut self, face: &StepClock, count: u64) {
        *at(&mut self.0, face.now) += count;
    }

    pub(super) fn turn(&mut self, turn: StepChange) {
        if let StepChange::Folded(times) = turn {
            (0..times).for_each(|_| fold(&mut self.0, |first, second| first + second));
        }
    }

    pub(super) fn values(&self, face: &StepClock) -> Vec<u64> {
        padded(&self.0, face)
    }
}

/// The maximum of a level in each step.
#[derive(Clone, Debug, Default)]
pub(super) struct StepPeaks {
    now: u64,
    peaks: Vec<u64>,
    last: usize,
}

impl StepPeaks {
    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn set(&mut self, face: &StepClock, level: u64) {
        self.now = level;
        let peak = at(&mut self.peaks, face.now);
        *peak = (*peak).max(level);
    }

    pub(super) fn turn(&mut self, face: &StepClock, turn: StepChange) {
        if let StepChange::Folded(times) = turn {
            (0..times).for_each(|_| fold(&mut self.peaks, u64::max));
            self.last >>= times;
        }
        if turn != StepChange::Same {
            // The level did not change in the steps between.
            for step in self.last..=face.now {
                let peak = at(&mut self.peaks, step);
                *peak = (*peak).max(self.now);
            }
            self.last = face.now;
        }
    }

    pub(super) fn values(&self, face: &StepClock) -> Vec<u64> {
        padded(&self.peaks, face)
    }
}

fn at(steps: &mut Vec<u64>, place: usize) -> &mut u64 {
    if steps.len() <= place {
        steps.resize(place + 1, 0);
    }
    &mut steps[place]
}

fn padded(steps: &[u64], face: &StepClock) -> Vec<u64> {
    steps.iter().copied().chain(std::iter::repeat(0)).take(face.begun()).collect()
}

fn fold(steps: &mut Vec<u64>, join: fn(u64, u64) -> u64) {
    *steps = steps.chunks(2).map(|pair| pair.iter().copied().fold(0, join)).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_fold_and_nothing_is_lost() {
        let mut face = StepClock::default();
        let (mut sums, mut level) = (StepSums::default(), StepPeaks::default());
        for second in 0..1_000_u64 {
            let turn = face.advance(second * 1_000_000_000);
            sums.turn(turn);
            level.turn(&face, turn);
            sums.add(&face, 1);
            if second == 500 {
                level.set(&face, 9);
                level.set(&face, 3);
            }
        }
        assert_eq!(face.step(), Duration::from_secs(8));
        assert_eq!(face.begun(), 125);
        assert_eq!(sums.values(&face), vec![8; 125]);
        let levels = level.values(&face);
        assert_eq!(levels[..62], vec![0; 62]);
        assert_eq!(levels[62], 9);
        assert_eq!(levels[63..], vec![3; 62]);
    }
}
