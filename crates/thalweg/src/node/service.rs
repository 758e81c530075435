//! Request and reply on a topic: a server answers the requests of clients.
//!
//! Requests travel on the topic itself, replies on `TOPIC/reply`. Both carry the asker's id and the number of the question, so
//! that a client finds its own answer. With several servers the first answer counts.

#![allow(clippy::disallowed_methods)] // a user waits

use super::Node;
use super::{Publisher, Subscriber};
use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// A question or an answer, with its number.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Numbered<T> {
    asker: u64,
    number: u64,
    body: T,
}

/// Types of questions and answers: any that serde can encode and decode.
pub trait Body: Serialize + DeserializeOwned + Send + 'static {}
impl<T: Serialize + DeserializeOwned + Send + 'static> Body for T {}

/// Asks questions of type `Q` and waits for answers of type `A`.
pub struct Client<Q: Body, A: Body> {
    asker: u64,
    number: u64,
    questions: Publisher<Numbered<Q>>,
    answers: Subscriber<Numbered<A>>,
}

/// Answers questions until it is dropped.
pub struct Server<Q: Body> {
    _questions: Subscriber<Numbered<Q>>,
}

impl Node {
    /// A client of the service on `topic`.
    ///
    /// # Errors
    /// As for opening any port.
    pub fn client<Q: Body, A: Body>(&self, topic: &str) -> Result<Client<Q, A>> {
        let answers = self.subscriber(&reply_topic(topic)).open()?;
        let questions = self.publisher(topic).answered_at(&answers).open()?;
        let asker = self.id().0 ^ (linux::clock::monotonic_ns() << 20); // several clients of one node differ
        Ok(Client { asker, number: 0, questions, answers })
    }

    /// A server on `topic`. `answer` is called with every question, on the receiving thread.
    ///
    /// # Errors
    /// As for opening any port.
    pub fn server<Q: Body, A: Body>(
        &self,
        topic: &str,
        mut answer: impl FnMut(&Q) -> A + Send + 'static,
    ) -> Result<Server<Q>> {
        let mut answers = self.publisher::<Numbered<A>>(&reply_topic(topic)).open()?;
        let questions = self.subscriber::<Numbered<Q>>(topic).answering_with(&answers).callback(move |question| {
            let body = answer(&question.body);
            // A client that has left needs no answer. An answer that cannot be sent shows as the client's time-out.
            let _ = answers.publish(&Numbered { asker: question.asker, number: question.number, body });
        })?;
        Ok(Server { _questions: questions })
    }
}

impl<Q: Body, A: Body> Client<Q, A> {
    /// Asks, and waits at most `timeout` for the answer.
    ///
    /// # Errors
    /// [`Error::Peer`] when no server is there or none answers in time; [`Error::Message`] for a question too large.
    pub fn call(&mut self, question: Q, timeout: Duration) -> Result<A> {
        let until = Instant::now() + timeout;
        if !(self.questions.wait_connected(1, timeout)
            && self.answers.wait_connected(1, until - Instant::now().min(until)))
        {
            let topic = self.questions.topic();
            return Err(Error::Peer(format!(
                "no server on {topic} within {} ms: start one, or wait longer",
                timeout.as_millis()
            )));
        }
        self.number += 1;
        self.questions.publish(&Numbered { asker: self.asker, number: self.number, body: question })?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.answers.wait(left) {
                Some(answer) if (answer.asker, answer.number) == (self.asker, self.number) => {
                    return answer.into_value().map(|answer| answer.body).ok_or(Error::Closed);
                }
                Some(_) => {} // another client's, or late
                None => {
                    let topic = self.questions.topic();
                    return Err(Error::Peer(format!("no answer on {topic} within {} ms", timeout.as_millis())));
                }
            }
        }
    }
}

fn reply_topic(topic: &str) -> String {
    format!("{topic}/reply")
}
