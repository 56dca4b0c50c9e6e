//! Patterns of names, as in a shell.

use crate::base::error::{Result, invalid};

/// `*`: any text, `?`: one character, `[a-z0]`: one of these, `[^a-z]`: none of these. A backslash
/// makes the next character literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    One(char),
    AnyOne,
    AnyText,
    Class { is_negated: bool, ranges: Vec<(char, char)> },
}

impl Part {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::One(own) => *own == c,
            Self::AnyOne => true,
            Self::AnyText => false,
            Self::Class { is_negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *is_negated
            }
        }
    }
}

impl Glob {
    /// # Errors
    /// `InvalidInput` for an empty pattern, a `[` without its `]`, and a backslash at the end.
    pub(crate) fn parse(pattern: &str) -> Result<Self> {
        let refuse = |why: &str| {
            let why = format!(
                "the pattern {pattern:?} {why} (a backslash makes the next character literal)"
            );
            invalid(why)
        };
        if pattern.is_empty() {
            return Err(refuse("is empty; '*' matches every name"));
        }
        let mut parts = Vec::new();
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            parts.push(match c {
                '*' if parts.last() == Some(&Part::AnyText) => continue,
                '*' => Part::AnyText,
                '?' => Part::AnyOne,
                '\\' => Part::One(rest.next().ok_or_else(|| refuse("ends with a backslash"))?),
                '[' => class(&mut rest).ok_or_else(|| refuse("has a '[' without a ']'"))?,
                c => Part::One(c),
            });
        }
        Ok(Self { parts })
    }

    /// The only name that it can match, if there is just one.
    pub(crate) fn only(&self) -> Option<String> {
        let one = |part: &Part| if let Part::One(c) = part { Some(*c) } else { None };
        self.parts.iter().map(one).collect()
    }

    /// A pattern that matches everything this one matches, and maybe more, in which only `*` is
    /// special: for servers that count bytes where this counts characters. `escape` makes a
    /// character literal on that server.
    pub(crate) fn widened(&self, escape: impl Fn(char) -> String) -> String {
        let mut wide = String::new();
        for part in &self.parts {
            match part {
                Part::One(c) => wide.push_str(&escape(*c)),
                _ if wide.ends_with('*') && !wide.ends_with("\\*") => {}
                _ => wide.push('*'),
            }
        }
        wide
    }

    /// Takes at most time proportional to the product of the two lengths.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let mut part = 0;
        let mut at = 0;
        // The part after the last `*`, and the end of the text that this `*` matches.
        let mut retry: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.parts.get(part) {
                Some(Part::AnyText) => {
                    part += 1;
                    retry = Some((part, at));
                }
                Some(one) if one.takes(name[at]) => (part, at) = (part + 1, at + 1),
                _ => match &mut retry {
                    Some((behind, end)) => {
                        *end += 1;
                        (part, at) = (*behind, *end);
                    }
                    None => return false,
                },
            }
        }
        self.parts[part..].iter().all(|part| *part == Part::AnyText)
    }
}

/// What follows a `[`, up to its `]`. A `]` that comes first is a member of the class.
fn class(rest: &mut std::str::Chars<'_>) -> Option<Part> {
    let is_negated = rest.as_str().starts_with(['^', '!']);
    if is_negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        let first = match rest.next()? {
            ']' if !ranges.is_empty() => return Some(Part::Class { is_negated, ranges }),
            '\\' => rest.next()?,
            c => c,
        };
        let is_range = rest.as_str().starts_with('-') && !rest.as_str().starts_with("-]");
        if !is_range {
            ranges.push((first, first));
            continue;
        }
        rest.next();
        let last = match rest.next()? {
            '\\' => rest.next()?,
            c => c,
        };
        ranges.push((first.min(last), first.max(last)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::parse(pattern).unwrap().matches(name)
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name) in [
            ("*", "job"),
            ("job", "job"),
            ("job*", "job"),
            ("*:7", "job:17:7"),
            ("a*b*c", "a-b-b-c"),
            ("j?b", "jöb"),
            ("[a-cx]*", "x1"),
            ("[c-a]", "b"),
            ("[^a-c]", "d"),
            ("[!a]", "b"),
            ("[]a]", "]"),
            ("[a-]", "-"),
            ("[\\]]", "]"),
            ("\\*", "*"),
            ("a\\[1\\]", "a[1]"),
            ("**", "x"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("job", "jobs"),
            ("?", "ab"),
            ("?", ""),
            ("a*b", "a-b-c"),
            ("[a-c]", "d"),
            ("[^a-c]", "b"),
            ("\\*", "x"),
            ("*x", "y"),
            ("a?", "a"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        // Would take years if it tried every text for every `*`.
        assert!(!matches(&"a*".repeat(30), &format!("{}b", "a".repeat(2000).replace("aa", "ca"))));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in ["", "[", "[]", "a[b", "\\", "[a-", "[\\"] {
            assert_eq!(Glob::parse(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn a_pattern_may_have_only_one_name() {
        let only = |pattern| Glob::parse(pattern).unwrap().only();
        assert_eq!((only("job").as_deref(), only("a\\*").as_deref()), (Some("job"), Some("a*")));
        assert_eq!((only("job*"), only("j?b"), only("[a]")), (None, None, None));
    }

    #[test]
    fn a_wider_pattern_has_one_special_character() {
        let wide = |pattern| {
            let escape =
                |c: char| if "*?[]\\".contains(c) { format!("\\{c}") } else { c.to_string() };
            Glob::parse(pattern).unwrap().widened(escape)
        };
        assert_eq!(wide("a?[b-c]*d\\*e"), "a*d\\*e");
        assert_eq!(wide("\\**"), "\\**");
        assert_eq!(wide("\\?"), "\\?");
    }
}
