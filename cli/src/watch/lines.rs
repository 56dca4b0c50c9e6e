//! Events as lines for people.

use std::time::Duration;

use super::standing::Holder;
use super::timeline::{Event, What};
use crate::text::time;

/// ` 12.3 s  taken by billing-7 (pid 4711 on host-a), token 17`
pub(super) fn line(event: &Event, interval: Duration) -> String {
    format!("{:>9}  {}\n", clock(event.at, interval), text(event))
}

/// The time since the start, as exact as the polls. It is rounded down: rounded up, it could show
/// 60 seconds.
fn clock(at: Duration, interval: Duration) -> String {
    let digits = if interval < Duration::from_millis(100) { 2 } else { 1 };
    let fraction = at.subsec_millis() / if digits == 2 { 10 } else { 100 };
    let minutes = at.as_secs() / 60;
    let seconds = at.as_secs() % 60;
    match minutes {
        0 => format!("{seconds}.{fraction:0digits$} s"),
        1..60 => format!("{minutes}:{seconds:02}.{fraction:0digits$}"),
        _ => format!("{}:{:02}:{:02}", minutes / 60, minutes % 60, seconds),
    }
}

fn text(event: &Event) -> String {
    let holders = event.holders;
    let of_several = |before: &str| match holders {
        0 | 1 => String::new(),
        several => format!("{before}{several} hold it"),
    };
    match &event.what {
        What::Held { by } => format!("held by {}{}", by.who(), so_far(by)),
        What::Taken { by, token } => {
            format!("taken by {}{}{}", by.who(), with(*token), of_several("; "))
        }
        What::TakenAgain { by, token } => format!("taken again by {}{}", by.who(), with(*token)),
        What::HandedOver { from, to, after, token } if from.who() == to.who() => {
            format!("taken again by {} after {}{}", to.who(), time(*after), with(*token))
        }
        What::HandedOver { from, to, after, token } => {
            format!(
                "handed to {}{}; {} had it for {}",
                to.who(),
                with(*token),
                from.who(),
                time(*after)
            )
        }
        What::Left { who, after } => {
            let rest = if holders == 1 { "; 1 holds it".to_owned() } else { of_several("; ") };
            format!("released by {} after {}{rest}", who.who(), time(*after))
        }
        What::Free { holder: Some(holder), after: Some(after) } => {
            format!("free after {}; {} had it", time(*after), holder.who())
        }
        What::Free { .. } => "free".to_owned(),
        What::Named { holder } => format!("the holder is {}", holder.who()),
        What::Waiting(0) => "nobody waits".to_owned(),
        What::Waiting(1) => "1 waits".to_owned(),
        What::Waiting(waiting) => format!("{waiting} wait"),
        What::Number(number) => format!("the number is {number}"),
        What::CutOff { why } => format!("the store cannot be queried: {why}"),
        What::Back { after } => {
            format!("the store answers again; nothing is known about the {} before", time(*after))
        }
    }
}

fn with(token: Option<u64>) -> String {
    token.map(|token| format!(", token {token}")).unwrap_or_default()
}

fn so_far(holder: &Holder) -> String {
    holder.held_for.map(|held_for| format!(" for {} so far", time(held_for))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_exact_as_the_looks() {
        let clock = |millis, interval| {
            clock(Duration::from_millis(millis), Duration::from_millis(interval))
        };
        assert_eq!(clock(12_345, 200), "12.3 s");
        assert_eq!(clock(12_345, 10), "12.34 s");
        assert_eq!(clock(12_045, 10), "12.04 s");
        assert_eq!(clock(125_250, 200), "2:05.2");
        assert_eq!(clock(59_990, 200), "59.9 s");
        assert_eq!(clock(119_970, 200), "1:59.9");
        assert_eq!(clock(119_999, 10), "1:59.99");
        assert_eq!(clock(3_725_250, 200), "1:02:05");
    }
}
