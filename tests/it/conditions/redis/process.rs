//! What concerns the whole process of the client: each of these rows has one of its own.

use std::sync::atomic::{AtomicBool, Ordering};

use super::around::Behaviour;
use super::*;
use crate::conditions::row::{NO_MORE_FILES, may_open_files};
use crate::conditions::rows;

/// A logger or a tracer of the user, on each thread that calls it while the condition lasts.
struct BadObserver(Behaviour);

static LASTS: AtomicBool = AtomicBool::new(false);

impl BadObserver {
    fn act(&self) {
        if LASTS.load(Ordering::SeqCst) {
            match self.0 {
                Behaviour::Panics => panic!("the code of the user panics"),
                _ => std::thread::sleep(ms(20)),
            }
        }
    }
}

impl log::Log for BadObserver {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        self.act();
    }

    fn flush(&self) {}
}

impl tracing::Subscriber for BadObserver {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        self.act();
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {
        self.act();
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {
        self.act();
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.act();
    }

    fn enter(&self, _: &tracing::span::Id) {
        self.act();
    }

    fn exit(&self, _: &tracing::span::Id) {
        self.act();
    }

    fn try_close(&self, _: tracing::span::Id) -> bool {
        self.act();
        true
    }
}

/// After the observer was installed.
fn observed(install: impl FnOnce()) -> OneRedis {
    install();
    OneRedis::stage(
        &[],
        |_, _| LASTS.store(true, Ordering::SeqCst),
        |_, _| LASTS.store(false, Ordering::SeqCst),
    )
}

fn logged_to(behaviour: Behaviour) -> OneRedis {
    observed(|| {
        log::set_logger(Box::leak(Box::new(BadObserver(behaviour))))
            .expect("this process has no other");
        log::set_max_level(log::LevelFilter::Trace);
    })
}

fn traced_by(behaviour: Behaviour) -> OneRedis {
    observed(|| {
        tracing::subscriber::set_global_default(BadObserver(behaviour))
            .expect("this process has no other");
    })
}

fn without_more_files(begins: impl Fn(&mut OneRedis) + 'static) -> OneRedis {
    OneRedis::stage(
        &[],
        move |stage, _| {
            may_open_files(false);
            begins(stage);
        },
        |_, _| may_open_files(true),
    )
}

rows! {
    no_more_files: row(NO_MORE_FILES, || without_more_files(|_| ())).alone();

    no_files: row("The process may open no more files, and its connections end", || {
        without_more_files(|stage| stage.proxy().cut_all())
    }).alone().failing(unreachable, &["Too many open files"]);

    logger_panics: row("The program's logger panics, whenever it is called", || logged_to(Behaviour::Panics)).alone();

    logger_blocks: row("The program's logger blocks for 20 ms, whenever it is called", || logged_to(Behaviour::Hangs)).alone();

    tracer_panics: row("The program's tracer panics, whenever it is called", || traced_by(Behaviour::Panics)).alone();

    tracer_blocks: row("The program's tracer blocks for 20 ms, whenever it is called", || traced_by(Behaviour::Hangs)).alone();
}
