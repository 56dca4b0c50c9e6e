//! A listener that is not a real server: each connection runs a function of the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::rig::{CAP, wait_until};

/// A listener that runs `serve` for each connection and counts the open ones.
pub(super) struct Fake {
    url: String,
    /// That of its socket, if it has no port.
    dir: Option<PathBuf>,
    open: Arc<AtomicU32>,
}

impl Fake {
    pub(super) fn start(serve: impl Fn(UnixStream) + Send + Sync + 'static) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("lh-fake-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let listener = UnixListener::bind(dir.join("s")).unwrap();
        let url = format!("redis+unix://{}", dir.join("s").display());
        Self::listen(url, Some(dir), serve, move || listener.accept().ok().map(|(s, _)| s))
    }

    pub(super) fn over_tcp(serve: impl Fn(UnixStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        Self::listen(url, None, serve, move || {
            let stream = listener.accept().ok()?.0;
            stream.set_nodelay(true).unwrap();
            // What a test does with it is the same on both kinds.
            Some(UnixStream::from(OwnedFd::from(stream)))
        })
    }

    fn listen(
        url: String,
        dir: Option<PathBuf>,
        serve: impl Fn(UnixStream) + Send + Sync + 'static,
        accept: impl FnMut() -> Option<UnixStream> + Send + 'static,
    ) -> Self {
        let open = Arc::new(AtomicU32::new(0));
        let (serve, count) = (Arc::new(serve), open.clone());
        // The thread ends with the process: no client connects any more when the test is over.
        std::thread::spawn(move || {
            for stream in std::iter::from_fn(accept) {
                let (serve, count) = (serve.clone(), count.clone());
                count.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    serve(stream);
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { url, dir, open }
    }

    /// Answers each request with what `answer` returns.
    pub(super) fn answering(answer: impl Fn(&[String]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |mut stream| {
            let mut requests = BufReader::new(stream.try_clone().unwrap());
            while let Some(words) = read_request(&mut requests) {
                if stream.write_all(&answer(&words)).is_err() {
                    return;
                }
            }
        })
    }

    /// Sends these bytes at once, then reads until the client disconnects.
    pub(super) fn saying(words: &[u8]) -> Self {
        let words = words.to_vec();
        Self::start(move |mut stream| {
            let _ = stream.write_all(&words);
            let _ = stream.read_to_end(&mut Vec::new());
        })
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    #[track_caller]
    pub(super) fn assert_left(&self) {
        wait_until("every connection is gone", || self.open.load(Ordering::SeqCst) == 0);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(dir) = &self.dir {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

fn read_request(from: &mut impl BufRead) -> Option<Vec<String>> {
    let mut line = String::new();
    let mut number = |from: &mut dyn BufRead| {
        line.clear();
        from.read_line(&mut line).ok()?;
        line.trim_end().get(1..)?.parse::<usize>().ok()
    };
    let count = number(from)?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; number(from)? + 2];
            from.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            String::from_utf8(word).ok()
        })
        .collect()
}

pub(super) fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// Runs a call that might never return. `None` if it panicked or did not return in time.
pub(super) fn bounded<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(call()));
    receiver.recv_timeout(CAP).ok()
}
