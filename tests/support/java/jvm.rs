//! A Java process that is controlled line by line: THREAD COMMAND, and THREAD ANSWER.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use crate::rig::{CAP, ms, wait_until};

/// One process of Redisson or Curator.
pub(crate) struct Jvm {
    process: Mutex<Child>,
    stdin: Mutex<Option<ChildStdin>>,
    /// The pending answers, by the names of their threads.
    answers: Arc<Mutex<HashMap<String, Sender<String>>>>,
    next: AtomicU32,
}

impl Jvm {
    /// Runs a program, which prints `ready` when it is.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = Mutex::new(process.stdin.take());
        let mut lines =
            BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("ready"), "the Java program starts");
        let answers = Arc::new(Mutex::new(HashMap::<String, Sender<String>>::new()));
        let receivers = answers.clone();
        std::thread::spawn(move || {
            for line in lines {
                let (thread, answer) = line.split_once(' ').expect("THREAD ANSWER");
                // The thread that asked may have ended.
                let _ = receivers.lock()[thread].send(answer.to_owned());
            }
            // Threads that wait for an answer are notified that there will be none.
            receivers.lock().clear();
        });
        Self { process: Mutex::new(process), stdin, answers, next: AtomicU32::new(0) }
    }

    /// A new thread of this process, which can hold locks.
    pub(crate) fn thread(&self) -> JavaThread<'_> {
        let name = format!("t{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, answers) = unbounded();
        self.answers.lock().insert(name.clone(), sender);
        JavaThread { jvm: self, name, asked: Mutex::default(), answers }
    }

    /// The process id, for signals.
    #[allow(dead_code, reason = "Redisson is not stopped")]
    pub(crate) fn pid(&self) -> u32 {
        self.process.lock().id()
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock();
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        // Ends its input. After a failed test most of its threads still wait for something.
        self.stdin.lock().take();
        for _ in 0..250 {
            if matches!(self.process.get_mut().try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(ms(20));
        }
        let _ = self.process.get_mut().kill();
        let _ = self.process.get_mut().wait();
    }
}

/// One thread of the Java process: a holder, for its library.
pub(crate) struct JavaThread<'a> {
    jvm: &'a Jvm,
    name: String,
    /// The last command.
    asked: Mutex<String>,
    answers: Receiver<String>,
}

impl JavaThread<'_> {
    /// Sends the command `PRIMITIVE NAME METHOD [ARGUMENTS]`; the answer follows later.
    pub(crate) fn begin(&self, command: &str) {
        command.clone_into(&mut self.asked.lock());
        let mut stdin = self.jvm.stdin.lock();
        writeln!(stdin.as_mut().unwrap(), "{} {command}", self.name).unwrap();
    }

    /// The answer to the last command.
    #[track_caller]
    pub(crate) fn answer(&self) -> String {
        self.answer_within(CAP)
    }

    #[track_caller]
    pub(crate) fn answer_within(&self, longest: Duration) -> String {
        let asked = self.asked.lock();
        let answer = self
            .answers
            .recv_timeout(longest)
            .unwrap_or_else(|e| panic!("{asked}: no answer from Java: {e}"));
        assert!(!answer.starts_with('!'), "{asked}: {answer}");
        answer
    }

    #[track_caller]
    pub(crate) fn call(&self, command: &str) -> String {
        self.begin(command);
        self.answer()
    }

    /// The answer, or the exception.
    pub(crate) fn attempt(&self, command: &str) -> Result<String, String> {
        self.begin(command);
        let answer =
            self.answers.recv_timeout(CAP).unwrap_or_else(|e| panic!("no answer from Java: {e}"));
        answer
            .strip_prefix('!')
            .map_or_else(|| Ok(answer.clone()), |exception| Err(exception.to_owned()))
    }

    /// The exception of a command that must fail.
    #[track_caller]
    pub(crate) fn fail(&self, command: &str) -> String {
        self.begin(command);
        let answer =
            self.answers.recv_timeout(CAP).unwrap_or_else(|e| panic!("no answer from Java: {e}"));
        answer
            .strip_prefix('!')
            .unwrap_or_else(|| panic!("{command}: {answer}, and no exception"))
            .to_owned()
    }

    /// Whether the last command has no answer yet.
    pub(crate) fn waits(&self) -> bool {
        self.answers.is_empty()
    }

    /// The same where the waiter may be visible elsewhere than on one server.
    #[track_caller]
    pub(crate) fn begin_waiting_until(&self, command: &str, shown: impl Fn() -> bool) {
        self.begin(command);
        wait_until(&format!("{command} waits"), || !self.waits() || shown());
        // Redisson tries once more and only then waits: a message `1` of a Redisson writer in
        // between wakes nobody, and nothing on the server shows when that is over. Curator sets its
        // watch after its node becomes visible.
        std::thread::sleep(ms(300));
        assert!(self.waits(), "{command} did not wait: {:?}", self.answers.try_recv());
    }
}
