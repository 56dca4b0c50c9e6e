//! `leasehold watch`: a time line of who had a lock.

mod args;
mod bars;
mod lines;
mod picture;
mod standing;
mod summary;
mod svg_file;
mod timeline;
mod views;

use std::io::{IsTerminal, stdout};
use std::time::Instant;

use crossbeam_channel::{Receiver, after, never, select};
use leasehold::observe::LockReport;

use crate::failure::Failure;
use crate::looks::{Look, Looks, asker_has_ended};
use crate::output::{Reader, write_json, write_out};
use crate::platform::{columns_of_stdout, take_in};
use crate::shown_url::shown;
use crate::store::StoreArgs;
use crate::text::visible;
use crate::words::chain;
pub(crate) use args::WatchArgs;
use picture::{Title, picture};
use standing::Standing;
use summary::Summary;
use svg_file::SvgFile;
use timeline::{Event, Timeline};
use views::{EventView, SummaryView};

/// Returns the exit status.
pub(crate) fn watch(store: &StoreArgs, args: &WatchArgs) -> Result<u8, Failure> {
    let urls = shown(&store.urls(&[])?);
    let client = store.builder()?.busy_poll(false).build()?;
    let name = args.name.clone();
    let signals = take_in()?;
    // Created before the watch, which may be long and would be in vain without a file, and after
    // signals are handled: a signal that ended the process would leave the file behind.
    let file = args.svg.as_deref().map(SvgFile::create).transpose()?;
    let start = Instant::now();
    let looks = Looks::start(args.interval, move || client.inspect(&name))?;
    let over = args.time.map_or(never(), after);
    let mut watch =
        Watch { args, start, timeline: Timeline::new(args.interval), has_answered: false };
    let seen = watch.until_the_end(&looks, &signals, &over);
    watch.timeline.finish(start.elapsed());
    let told =
        seen.and_then(
            |reader| if reader == Reader::Stays { watch.print_summary() } else { Ok(reader) },
        );
    if told.is_err() && !watch.has_answered {
        // There is nothing to draw.
        return told.map(|_| 0);
    }
    let title = Title { name: visible(&args.name), store: urls, interval: args.interval };
    // The picture is written even if stdout is closed or cannot be written.
    let drawn = file.map_or(Ok(()), |file| file.write(&picture(&title, &watch.timeline)));
    told.and(drawn)?;
    Ok(0)
}

struct Watch<'w> {
    args: &'w WatchArgs,
    start: Instant,
    timeline: Timeline,
    has_answered: bool,
}

impl Watch<'_> {
    fn until_the_end(
        &mut self,
        looks: &Looks<Option<LockReport>>,
        signals: &Receiver<i32>,
        over: &Receiver<Instant>,
    ) -> Result<Reader, Failure> {
        let mut reader = Reader::Stays;
        while reader == Reader::Stays {
            reader = select! {
                recv(looks.received) -> look => self.look(look.map_err(|_| asker_has_ended())?)?,
                recv(signals) -> _ => break,
                recv(over) -> _ => break,
            };
        }
        Ok(reader)
    }

    fn look(&mut self, look: Look<Option<LockReport>>) -> Result<Reader, Failure> {
        let at = look.begun.saturating_duration_since(self.start) + look.took;
        let events = match look.answer {
            Ok(report) => {
                self.has_answered = true;
                let standing = report.as_ref().map(Standing::from).unwrap_or_default();
                self.timeline.see(at, &standing)
            }
            Err(e) if !self.has_answered => return Err(e.into()),
            Err(e) => self.timeline.cut_off(at, &visible(&chain(&e))),
        };
        self.print(&events)
    }

    fn print(&self, events: &[Event]) -> Result<Reader, Failure> {
        for event in events {
            let reader = if self.args.json {
                write_json(&EventView::from(event))?
            } else {
                write_out(lines::line(event, self.args.interval).as_bytes())?
            };
            if reader == Reader::Left {
                return Ok(reader);
            }
        }
        Ok(Reader::Stays)
    }

    fn print_summary(&self) -> Result<Reader, Failure> {
        let summary = Summary::of(&self.timeline);
        if self.args.json {
            return write_json(&SummaryView::from(&summary));
        }
        let mut text = summary.to_string();
        if stdout().is_terminal()
            && let Some(columns) = columns_of_stdout()
        {
            text += &bars::bars(&self.timeline, columns);
        }
        write_out(text.as_bytes())
    }
}
