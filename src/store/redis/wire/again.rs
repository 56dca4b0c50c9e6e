//! Requests that the server refused before they ran, so that they can be sent again.

use super::batch::{Answer, Outcome};
use super::pool::Pool;
use super::request::Request;
use super::unknown_outcome::RedisFailure;

impl Pool {
    /// Returns the answer, unless the server does not know the script. Then the request is sent
    /// again with the source, which the server keeps; NOSCRIPT guarantees that nothing ran. It is
    /// also sent again where the server has forgotten who asks.
    pub(super) fn loaded(&self, request: &Request, answer: Answer) -> Outcome {
        if answer.reply.is_error("NOSCRIPT")
            && let Some(whole) = request.whole()
        {
            return self.call(whole);
        }
        if answer.reply.is_logged_out() {
            return self.call_logged_in(request);
        }
        Ok(answer)
    }

    /// Sends the request again on a connection that has just logged in: those of the pool may be of
    /// the same expired identity. NOAUTH guarantees that nothing ran.
    #[cold]
    fn call_logged_in(&self, request: &Request) -> Outcome {
        let mut connection = self.connect().map_err(RedisFailure::NotSent)?;
        let (mut replies, flight) = connection.exchange(std::slice::from_ref(request))?;
        let reply = replies.pop().expect("a reply for every request");
        if !reply.is_demotion() {
            self.adopt(connection);
        }
        Ok(Answer { reply, sent_at: flight.sent_at })
    }
}
