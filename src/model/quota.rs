//! What a quota is: so much cost in each calendar window, and what happens on the way there.
//!
//! Pure: policy files are read into it, cases of `PolicyTest` are judged by it, and the engine
//! that counts asks it about every call, so that all of them mean the same. It counts nothing.

use std::num::NonZeroU64;

use jiff::{
    SignedDuration, Timestamp, ToSpan, Unit, Zoned,
    civil::{Date, Time},
    tz::TimeZone,
};

/// A budget, and its steps from the lowest on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// In cost units.
    pub cost: NonZeroU64,
    pub every: Window,
    pub zone: Zone,
    pub steps: Vec<Step>,
}

/// A calendar window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    Hour,
    Day,
    /// From Monday on.
    Week,
    Month,
    Year,
}

/// The zone whose calendar counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    name: Box<str>,
    zone: TimeZone,
}

/// What happens once so much is spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Percent of the budget.
    pub percent: u32,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Warn,
    /// Calls that cost more go to this tool instead: `upstream/name`.
    Degrade {
        to: Box<str>,
        /// What that costs, once that is known: [`Budget::priced`].
        price: u32,
    },
    /// What costs at least so much leaves the lists.
    Hide {
        cost_at_least: u32,
    },
    Deny,
}

/// One turn of a window, in milliseconds since 1970; its end belongs to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub start_ms: u64,
    pub end_ms: u64,
}

/// What a budget says to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement<'a> {
    Passes,
    /// It would go beyond a step that sends it to a cheaper tool.
    Degrades(&'a Step),
    /// It would go beyond a step that refuses it.
    Stops(&'a Step),
}

// === impl Budget ===

impl Budget {
    /// The same, with what the cheaper tools cost that calls are sent to.
    #[must_use]
    pub fn priced(&self, price_of: impl Fn(&str) -> u32) -> Budget {
        let mut budget = self.clone();
        for step in &mut budget.steps {
            if let Action::Degrade { to, price } = &mut step.action {
                *price = price_of(to);
            }
        }
        budget
    }

    /// How much is spent at a step: no more than that goes through what the step is about.
    pub fn threshold(&self, percent: u32) -> u64 {
        let exact = u128::from(self.cost.get()) * u128::from(percent);
        u64::try_from(exact.div_ceil(100)).unwrap_or(u64::MAX)
    }

    /// Whether a call of this cost still fits, after so much was spent. What costs nothing always
    /// does. A step that is reached stops it; before one that it would only go beyond, a cheaper
    /// tool may still fit.
    pub fn judge(&self, used: u64, cost: u64) -> Judgement<'_> {
        let (mut degrades, mut stops) = (None, None);
        for step in self.steps.iter().filter(|step| self.is_over(step, used, cost)) {
            match &step.action {
                Action::Degrade { .. } => degrades = Some(step),
                Action::Warn => {}
                Action::Hide { .. } | Action::Deny if used >= self.threshold(step.percent) => {
                    return Judgement::Stops(step);
                }
                Action::Hide { .. } | Action::Deny => stops = stops.or(Some(step)),
            }
        }
        match (degrades, stops) {
            (Some(step), _) => Judgement::Degrades(step),
            (None, Some(step)) => Judgement::Stops(step),
            (None, None) => Judgement::Passes,
        }
    }

    fn is_over(&self, step: &Step, used: u64, cost: u64) -> bool {
        cost > 0
            && step.action.concerns(cost)
            && used.saturating_add(cost) > self.threshold(step.percent)
    }

    /// The most that may be spent with a call of this cost, as it is.
    pub fn ceiling(&self, cost: u64) -> u64 {
        let steps = self.steps.iter().filter(|step| step.action.concerns(cost));
        steps.map(|step| self.threshold(step.percent)).min().unwrap_or(u64::MAX)
    }

    /// The step that says so.
    pub fn first_stop(&self, cost: u64) -> Option<&Step> {
        let ceiling = self.ceiling(cost);
        let mut steps = self.steps.iter().filter(|step| step.action.concerns(cost));
        steps.find(|step| self.threshold(step.percent) == ceiling)
    }

    /// The cost from which on calls do not go through as they are; `None` if all do.
    pub fn stops_from(&self, used: u64) -> Option<u64> {
        let from = |step: &Step| {
            let beyond = self.threshold(step.percent).saturating_sub(used).saturating_add(1);
            match &step.action {
                Action::Warn => None,
                Action::Hide { cost_at_least } => Some(beyond.max(u64::from(*cost_at_least))),
                Action::Degrade { price, .. } => Some(beyond.max(u64::from(*price) + 1)),
                Action::Deny => Some(beyond),
            }
        };
        self.steps.iter().filter_map(from).min()
    }

    /// The next step that is not reached yet, as an amount.
    pub fn next_threshold(&self, used: u64) -> Option<u64> {
        let all = self.steps.iter().map(|step| self.threshold(step.percent));
        all.filter(|threshold| *threshold > used).min()
    }

    /// The highest step that says so when it is reached.
    pub fn warned(&self, used: u64) -> Option<&Step> {
        let warns =
            |step: &&Step| step.action == Action::Warn && self.threshold(step.percent) <= used;
        self.steps.iter().rev().find(warns)
    }

    /// Whether anything may be kept from going through.
    pub fn stops_anything(&self) -> bool {
        self.steps.iter().any(|step| step.action != Action::Warn)
    }

    /// The turn of the window that a moment belongs to. Beyond the calendar's end all is one.
    pub fn period(&self, now_ms: u64) -> Period {
        self.every.turn(&self.zone, now_ms).unwrap_or(Period { start_ms: 0, end_ms: u64::MAX })
    }
}

// === impl Action ===

impl Action {
    /// Whether it keeps calls of this cost from going through as they are.
    pub fn concerns(&self, cost: u64) -> bool {
        match self {
            Action::Warn => false,
            Action::Hide { cost_at_least } => cost >= u64::from(*cost_at_least),
            Action::Degrade { price, .. } => cost > u64::from(*price),
            Action::Deny => true,
        }
    }

    pub const fn as_str(&self) -> &'static str {
        match self {
            Action::Warn => "warn",
            Action::Degrade { .. } => "degrade",
            Action::Hide { .. } => "hide",
            Action::Deny => "deny",
        }
    }
}

// === impl Window ===

impl Window {
    pub const fn as_str(self) -> &'static str {
        match self {
            Window::Hour => "hour",
            Window::Day => "day",
            Window::Week => "week",
            Window::Month => "month",
            Window::Year => "year",
        }
    }

    fn turn(self, zone: &Zone, now_ms: u64) -> Option<Period> {
        let now = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?;
        let now = now.to_zoned(zone.zone.clone());
        let date = now.date();
        let (start, end) = match self {
            // By the clock's hour; where clocks go back, each of two equal ones is a window.
            Window::Hour => {
                let into = now.subsec_nanosecond();
                let into = SignedDuration::from_secs(
                    i64::from(now.minute()) * 60 + i64::from(now.second()),
                ) + SignedDuration::from_nanos(i64::from(into));
                let start = now.checked_sub(into).ok()?;
                let end = start.checked_add(SignedDuration::from_hours(1)).ok()?;
                return Period::between(&start, &end);
            }
            Window::Day => (date, date.checked_add(1.day()).ok()?),
            Window::Week => {
                let since = i32::from(date.weekday().to_monday_zero_offset());
                let start = date.checked_sub(since.days()).ok()?;
                (start, start.checked_add(7.days()).ok()?)
            }
            Window::Month => {
                let start = date.first_of_month();
                (start, start.checked_add(1.month()).ok()?)
            }
            Window::Year => {
                let start = date.first_of_year();
                (start, start.checked_add(1.year()).ok()?)
            }
        };
        Period::between(&zone.begins(start)?, &zone.begins(end)?)
    }
}

impl Period {
    fn between(start: &Zoned, end: &Zoned) -> Option<Self> {
        let ms = |at: &Zoned| u64::try_from(at.timestamp().as_millisecond()).ok();
        Some(Self { start_ms: ms(start)?, end_ms: ms(end)? })
    }
}

// === impl Zone ===

impl Zone {
    /// The zone of an IANA name, such as `Europe/Paris`: of the list that the program brings
    /// along, so that two hosts never disagree.
    pub fn named(name: &str) -> Option<Self> {
        let zone = TimeZone::get(name).ok()?;
        let known = zone.iana_name().unwrap_or(name);
        Some(Self { name: known.into(), zone: zone.clone() })
    }

    /// Every name there is.
    pub fn names() -> Vec<String> {
        jiff::tz::db().available().map(|name| name.to_string()).collect()
    }

    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// When a day begins: not at midnight where clocks jump over it.
    fn begins(&self, date: Date) -> Option<Zoned> {
        date.to_datetime(Time::midnight()).to_zoned(self.zone.clone()).ok()?.start_of_day().ok()
    }

    /// A moment as people there write it, to the minute.
    pub fn written(&self, ms: u64) -> String {
        let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let Some(at) = at else { return "the end of the calendar".to_owned() };
        let at = at.to_zoned(self.zone.clone());
        let at = at.round(Unit::Minute).unwrap_or(at);
        format!("{} ({})", at.strftime("%Y-%m-%d %H:%M"), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().as_millisecond().try_into().unwrap()
    }

    fn budget(cost: u64, every: Window, zone: &str, steps: &[(u32, Action)]) -> Budget {
        let steps = steps.iter().cloned().map(|(percent, action)| Step { percent, action });
        Budget {
            cost: NonZeroU64::new(cost).unwrap(),
            every,
            zone: Zone::named(zone).unwrap(),
            steps: steps.collect(),
        }
    }

    #[track_caller]
    fn turns(every: Window, zone: &str, at: &str, start: &str, end: &str) {
        let budget = budget(1, every, zone, &[]);
        let expected = Period { start_ms: ms(start), end_ms: ms(end) };
        let found = budget.period(ms(at));
        assert_eq!(found, expected, "{at}");
        // Windows leave nothing between them and share nothing.
        let next = budget.period(found.end_ms);
        assert_eq!(next.start_ms, found.end_ms, "{at}");
        assert_eq!(budget.period(found.end_ms - 1), found, "{at}");
        assert_eq!(budget.period(found.start_ms), found, "{at}");
    }

    #[test]
    fn windows_turn_by_the_calendar_of_their_zone() {
        let paris = "Europe/Paris";
        for (every, zone, at, start, end) in [
            // Summer time begins on 29 March, and ends on 25 October.
            (Window::Day, paris, "2026-03-29T12:00Z", "2026-03-28T23:00Z", "2026-03-29T22:00Z"),
            (Window::Day, paris, "2026-10-25T12:00Z", "2026-10-24T22:00Z", "2026-10-25T23:00Z"),
            (Window::Month, paris, "2026-03-31T21:59Z", "2026-02-28T23:00Z", "2026-03-31T22:00Z"),
            (Window::Month, paris, "2026-03-31T22:00Z", "2026-03-31T22:00Z", "2026-04-30T22:00Z"),
            (Window::Month, paris, "2026-10-31T22:30Z", "2026-09-30T22:00Z", "2026-10-31T23:00Z"),
            (Window::Week, paris, "2026-03-29T21:00Z", "2026-03-22T23:00Z", "2026-03-29T22:00Z"),
            (Window::Year, paris, "2026-12-31T22:59Z", "2025-12-31T23:00Z", "2026-12-31T23:00Z"),
            (Window::Week, "UTC", "2026-11-30T00:00Z", "2026-11-30T00:00Z", "2026-12-07T00:00Z"),
            // The hour that comes twice is two windows.
            (Window::Hour, paris, "2026-10-25T00:30Z", "2026-10-25T00:00Z", "2026-10-25T01:00Z"),
            (Window::Hour, paris, "2026-10-25T01:30Z", "2026-10-25T01:00Z", "2026-10-25T02:00Z"),
            // Half an hour off; and a day that has no midnight.
            (
                Window::Hour,
                "Asia/Kolkata",
                "2026-01-01T00:00Z",
                "2025-12-31T23:30Z",
                "2026-01-01T00:30Z",
            ),
            (
                Window::Day,
                "America/Santiago",
                "2026-09-06T12:00Z",
                "2026-09-06T04:00Z",
                "2026-09-07T03:00Z",
            ),
        ] {
            turns(every, zone, at, start, end);
        }
    }

    #[test]
    fn a_zone_needs_no_file_of_the_system() {
        assert!(Zone::named("Europe/Pariss").is_none());
        assert_eq!(Zone::named("UTC").unwrap().as_str(), "UTC");
        let paris = Zone::named("Europe/Paris").unwrap();
        assert_eq!(paris.written(ms("2026-06-30T22:00Z")), "2026-07-01 00:00 (Europe/Paris)");
        assert!(Zone::names().iter().any(|name| name == "Europe/Paris"));
    }

    #[test]
    fn steps_stop_what_would_go_beyond_them() {
        let hide = Action::Hide { cost_at_least: 5 };
        let cheap = Action::Degrade { to: "up/cheap".into(), price: 1 };
        let steps =
            [(80, Action::Warn), (90, cheap.clone()), (100, hide.clone()), (110, Action::Deny)];
        let budget = budget(100, Window::Day, "UTC", &steps);
        let word = |used, cost| match budget.judge(used, cost) {
            Judgement::Passes => "passes",
            Judgement::Degrades(step) => step.action.as_str(),
            Judgement::Stops(step) => step.action.as_str(),
        };
        for (used, cost, expected) in [
            (0, 90, "passes"),
            (0, 91, "degrade"),
            (90, 1, "passes"),
            (90, 2, "degrade"),
            (95, 5, "degrade"),
            (96, 5, "degrade"),
            (100, 5, "hide"),
            (100, 4, "degrade"),
            (107, 4, "degrade"),
            (110, 4, "deny"),
            (109, 1, "passes"),
            (110, 1, "deny"),
            (u64::MAX, 1, "deny"),
            (u64::MAX, 0, "passes"),
        ] {
            assert_eq!(word(used, cost), expected, "{cost} after {used}");
            // What lists leave out is what calls do not get.
            let stops = budget.stops_from(used).is_some_and(|from| cost >= from);
            assert_eq!(stops, cost > 0 && expected != "passes", "{cost} after {used}");
        }
        assert_eq!(budget.warned(79), None);
        assert_eq!(budget.warned(80).map(|step| step.percent), Some(80));
        assert_eq!((budget.ceiling(4), budget.next_threshold(80)), (90, Some(90)));
    }
}
