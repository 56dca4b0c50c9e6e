//! The rights that locks need, one by one. Nothing is executed if the server can report rights
//! (Redis 7): a script asks for each command, so that nothing changes and the `ACL LOG` stays
//! empty.

use super::questions::{KeyForm, NOBODY, ON_A_KEY, Question, Refused, key_forms, questions};
use super::subject::{Part, Subject};
use crate::base::advice::Advice;
use crate::base::error::Result;
use crate::base::job_name::JobName;
use crate::base::lock_name::{Kind, LockName};
use crate::report::diagnosis::{Check, Finding};
use crate::store::redis::keys::{channel_of, probe_names};
use crate::store::redis::script::refused_by_probe;
use crate::store::redis::wire::{BareConnection, Connector, Reply, Request, WHERE_IT_IS_NOT_OFF};

/// For each command in the arguments (the number of its words, then the words): 1 if the user may
/// run it, 0 if not, 2 if the server does not know it. Nil if the server cannot report it. The
/// number of words must be one that the command accepts, because the server relies on it.
const LOOK: &str = "\
if not redis.acl_check_cmd then return false end
local answers, at = {}, 1
while at <= #ARGV do
  local words = {}
  for i = 1, tonumber(ARGV[at]) do words[i] = ARGV[at + i] end
  at = at + 1 + #words
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  answers[#answers + 1] = known and (may and 1 or 0) or 2
end
return answers";

/// What the diagnosis found out about the rights, and what else it may ask.
#[derive(Default)]
pub(super) struct Rights {
    pub(super) findings: Vec<Finding>,
    pub(super) may_info: bool,
    pub(super) may_config: bool,
    /// `None` if unknown.
    pub(super) may_kill: Option<bool>,
}

pub(super) fn look(
    connection: &mut BareConnection,
    connector: &Connector,
    subject: &Subject,
) -> Result<Rights> {
    let keys = key_forms(subject);
    let mut channels = probe_names(&subject.key_prefix).1;
    channels.extend(channel_of_a_job(subject));
    let questions = questions(subject, connector.is_sharded(), &keys, &channels);
    let mut request = Request::plain(&["EVAL", LOOK, "0"]);
    for question in &questions {
        request = request.number(question.words.len() as u64);
        for word in &question.words {
            request = request.arg(word);
        }
    }
    let answer = connection.ask(&[request])?.remove(0);
    let mut rights = Rights::default();
    match answer {
        Reply::Error(e) => {
            rights.findings.push(if e.code == "NOPERM" || e.text.contains("permission") { Finding::problem(Check::Scripts, "the user may not run scripts, and every lock call is one")
            .advise("add +eval +evalsha to the user's ACL, and ask again: other rights were not checked") } else {
                let error = e.into_error();
                Finding::problem(Check::Scripts, format!("a script cannot run now: {}", error.message()))
                    .advised_by(&error)
            });
            // The answers show which of these are refused.
            Ok(Rights { may_info: true, may_config: true, ..rights })
        }
        Reply::Nil => by_trying(connection, connector),
        answers => {
            rights.findings.push(Finding::ok(Check::Scripts, "scripts run"));
            let answers = answers.into_list().unwrap_or_default();
            let mut may: Vec<bool> =
                answers.iter().map(|answer| *answer == Reply::Int(1)).collect();
            let unknown = without_unknown(&questions, &answers, &mut may);
            rights.findings.extend(unknown);
            judge(rights, &questions, &may, &keys, &channels, connection)
        }
    }
}

/// That of who waits for an occurrence; several masters have no jobs.
fn channel_of_a_job(subject: &Subject) -> Option<String> {
    let name = LockName::new(&subject.key_prefix, "probe", Kind::Job).ok()?;
    let job = JobName::new(&name, "probe").ok()?;
    let has_jobs = !matches!(subject.part, Part::Master { .. });
    has_jobs.then(|| channel_of(Kind::Done, &job.record.key))
}

/// What the server does not have is no question of rights: a finding for each such command, and
/// `may` says yes to it.
fn without_unknown(questions: &[Question], answers: &[Reply], may: &mut [bool]) -> Vec<Finding> {
    let mut unknown: Vec<&str> = Vec::new();
    for ((question, answer), may) in questions.iter().zip(answers).zip(may) {
        let is_needed = matches!(question.refused, Refused::Needed { .. } | Refused::Channel(_));
        if *answer == Reply::Int(2) && is_needed {
            *may = true;
            unknown.push(&question.words[0]);
        }
    }
    unknown.dedup();
    // Without these, scripts are sent with their source.
    unknown.retain(|command| !["script", "evalsha"].contains(command));
    unknown.into_iter().map(unknown_command).collect()
}

fn unknown_command(command: &str) -> Finding {
    let found = format!("the server does not have {}, which locks need", command.to_uppercase());
    Finding::problem(Check::Right, found).advise(WHERE_IT_IS_NOT_OFF)
}

/// Redis 6.2 cannot report what a user may do: the probe of the handshake tests whatever can be
/// tested without changing anything.
fn by_trying(connection: &mut BareConnection, connector: &Connector) -> Result<Rights> {
    let probe = &connector.handshake.probe;
    let kill = Request::plain(&["CLIENT", "KILL", "ID", NOBODY]);
    let requests =
        [probe.whole().unwrap_or_else(|| probe.clone()), kill, Request::plain(&["INFO", "server"])];
    let replies = connection.ask(&requests)?;
    let [probed, killed, info] =
        <[Reply; 3]>::try_from(replies).unwrap_or([Reply::Nil, Reply::Nil, Reply::Nil]);
    let mut findings = vec![Finding::ok(Check::Scripts, "scripts run")];
    let command = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    match refused_by_probe(probed) {
        Ok(mut refused) if !refused.unknown.is_empty() => {
            refused.unknown.dedup_by_key(|text| command(text));
            findings.extend(refused.unknown.iter().map(|text| unknown_command(&command(text))));
        }
        Ok(mut refused) if !refused.commands.is_empty() => {
            // Publishing is refused once for each form of channel.
            refused.commands.dedup_by_key(|text| command(text));
            findings.extend(refused.commands.iter().map(|text| {
                let found =
                    format!("the user may not run +{}, which locks need ({text})", command(text));
                Finding::problem(Check::Right, found).advise(Advice::GrantRights)
            }));
        }
        Ok(refused) if refused.key => {
            let found = "the user may not use the key with which rights are tested (~redisson_lock_token:*), so they are \
                 unknown";
            findings.push(Finding::warning(Check::Right, found).advise(Advice::GrantRights));
        }
        Ok(_) => {
            let found = "the commands that can be tested are permitted; this server does not report the others (HSET, INCR, \
                 RPUSH)";
            findings.push(Finding::note(Check::Right, found));
        }
        Err(e) => {
            let found = format!("rights cannot be tested: {}", e.message());
            findings.push(
                Finding::note(Check::Right, found)
                    .advise("ask again when the server serves requests"),
            );
        }
    }
    let may = |reply: &Reply| !matches!(reply, Reply::Error(_));
    Ok(Rights {
        findings,
        may_info: may(&info),
        may_config: true,
        may_kill: Some(may(&killed) && may(&info)),
    })
}

/// `may`: the server's answers.
fn judge(
    mut rights: Rights,
    questions: &[Question],
    may: &[bool],
    keys: &[KeyForm],
    channels: &[String],
    connection: &mut BareConnection,
) -> Result<Rights> {
    let answers = || questions.iter().zip(may);
    let any = |is: &dyn Fn(&Refused) -> bool| {
        answers().any(|(question, may)| *may && is(&question.refused))
    };
    let key_is_usable =
        |place: usize| any(&|refused| matches!(refused, Refused::Key(of) if *of == place));
    rights.may_info = any(&|refused| matches!(refused, Refused::Info));
    rights.may_config = any(&|refused| matches!(refused, Refused::Config));
    rights.may_kill = Some(any(&|refused| matches!(refused, Refused::Kill)) && rights.may_info);
    let mut missing = Vec::new();
    let on_probe =
        |question: &Question| ON_A_KEY.iter().any(|command| command[0] == question.words[0]);
    for (question, _) in answers().filter(|(_, may)| !**may) {
        match &question.refused {
            // Refused because of its key, not as a command.
            Refused::Needed { .. } if on_probe(question) && !key_is_usable(1) => {}
            Refused::Needed { rule, what } => {
                let found = format!("the user may not run {what}, which locks need");
                missing.push(
                    Finding::problem(Check::Right, found)
                        .advise(format!("add {rule} to the user's ACL")),
                );
            }
            Refused::Helpful { rule, lost }
                if question.words[0] != "linsert" || key_is_usable(1) =>
            {
                let found = format!(
                    "the user may not run {}: {lost}",
                    rule[1..].replace('|', " ").to_uppercase()
                );
                missing.push(
                    Finding::note(Check::Right, found)
                        .advise(format!("add {rule} to the user's ACL")),
                );
            }
            _ => {}
        }
    }
    missing.extend(missing_keys(keys, &key_is_usable));
    missing.extend(missing_channels(questions, may, channels, connection)?);
    if missing.is_empty() {
        missing.push(Finding::ok(
            Check::Right,
            "the user may run every command, and use keys and channels, of locks",
        ));
    }
    rights.findings.append(&mut missing);
    Ok(rights)
}

fn missing_keys(keys: &[KeyForm], is_usable: &dyn Fn(usize) -> bool) -> Vec<Finding> {
    // An ACL rule that names single locks permits no other keys: then a refusal proves nothing.
    let of_single_names = !keys.is_empty() && !is_usable(0);
    let refused = keys.iter().enumerate().filter(|(place, _)| !is_usable(*place));
    let finding = |(place, form): (usize, &KeyForm)| {
        let found = format!("the user may not use keys such as {:?}", form.key);
        let advice = format!("add {} to the user's ACL", form.rule);
        match form {
            KeyForm { helpful: true, .. } => {
                Finding::note(Check::Right, format!("{found}: others cannot see who holds a lock"))
                    .advise(advice)
            }
            _ if of_single_names && (place == 0 || form.rule.contains('{')) => {
                Finding::warning(Check::Right, found)
                    .advise(format!("{advice}, unless it names each lock that this program uses"))
            }
            _ => {
                Finding::problem(Check::Right, format!("{found}, which locks need")).advise(advice)
            }
        }
    };
    refused.map(finding).collect()
}

/// The channels that the user may not use; if that is all of them, whether the command is the
/// reason.
fn missing_channels(
    questions: &[Question],
    may: &[bool],
    channels: &[String],
    connection: &mut BareConnection,
) -> Result<Vec<Finding>> {
    let of = |place: usize| {
        let both = questions.iter().zip(may).filter(
            move |(question, _)| matches!(question.refused, Refused::Channel(of) if of == place),
        );
        both.map(|(question, may)| (question.words[0].clone(), *may)).collect::<Vec<_>>()
    };
    let all: Vec<Vec<(String, bool)>> = (0..channels.len()).map(of).collect();
    let mut findings = Vec::new();
    for direction in 0..2 {
        let Some((command, _)) = all.first().and_then(|both| both.get(direction)) else { continue };
        let is_refused = |place: usize| !all[place][direction].1;
        let everywhere = (0..channels.len()).all(is_refused);
        // The other command on the same channels distinguishes the two reasons.
        let other_works = (0..channels.len()).any(|place| all[place][1 - direction].1);
        let lacks_command =
            everywhere && (other_works || refuses_command(connection, command, &channels[0])?);
        if lacks_command {
            let found =
                format!("the user may not run {}, which wakes waiters", command.to_uppercase());
            findings.push(
                Finding::problem(Check::Right, found)
                    .advise(format!("add +{command} to the user's ACL")),
            );
        }
    }
    for (place, channel) in channels.iter().enumerate() {
        if all[place].iter().all(|(_, may)| !may) {
            let form = channel.split(['{', ':']).next().unwrap_or_default();
            let colon = if channel[form.len()..].starts_with(':') { ":" } else { "" };
            let found =
                format!("the user may not use channels such as {channel:?}, which wake waiters");
            findings.push(
                Finding::problem(Check::Right, found)
                    .advise(format!("add &{form}{colon}* to the user's ACL")),
            );
        }
    }
    Ok(findings)
}

/// Whether the user may not run a command that sends to a channel, rather than not use the channel.
/// Nobody listens there. The receiving commands are not tested: they would subscribe the
/// connection.
fn refuses_command(connection: &mut BareConnection, command: &str, channel: &str) -> Result<bool> {
    if command.ends_with("subscribe") {
        return Ok(false);
    }
    let reply = connection.ask(&[Request::plain(&[command, channel, "0"])])?.remove(0);
    Ok(
        matches!(reply, Reply::Error(e) if e.text.contains("command") && !e.text.contains("channel")),
    )
}
