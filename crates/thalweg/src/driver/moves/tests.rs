//! Moves in virtual time.

use super::*;
use crate::carrier::Name;
use crate::channel::PortRef;
use crate::channel::proxy::{Proxy, Selection};
use crate::control::{NodeId, PortId};
use crate::driver::matching::Route;
use std::cell::Cell;
use std::rc::Rc;

/// Two channels; `true`: the new one has taken over.
#[derive(Clone, Debug, Default)]
struct Fake(Rc<Cell<bool>>);

impl Passing for Fake {
    fn is_taken_over(&self) -> bool {
        self.0.get()
    }
    fn keep_old(&self) -> bool {
        !self.0.get()
    }
}

type TestMoves = Moves<Fake, u32>;

fn new() -> (TestMoves, Instant) {
    (Moves::default(), Instant::now())
}

fn pair(number: u32) -> Pair {
    let port = |node| PortRef { node: NodeId(node), port: PortId(number) };
    (port(1), port(2))
}

fn relay(name: &str) -> Place {
    Place::Relay(name.to_owned())
}

/// A way to this place.
fn way(carrier: Name, place: Place) -> Candidate {
    Candidate { carrier, route: Route::Process, place }
}

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

#[test]
fn ways_are_tried_one_after_the_other_and_all_again_later() {
    let (mut moves, begun) = new();
    let ways = || vec![way(Name::Tcp, relay("r")), way(Name::Udp, relay("r")), way(Name::Tcp, Place::Publisher)];
    assert_eq!(moves.begin(pair(1), ways(), false, begun), Some(ways().remove(0)));
    assert!(moves.is_in_handshake(&pair(1)) && moves.is_under_way(&pair(1)));
    assert_eq!(moves.next_deadline(), None, "a handshake has its own");
    let failed = |moves: &mut TestMoves, now| moves.failed(pair(1), &Place::Publisher, ways(), now);
    assert_eq!(failed(&mut moves, begun), Failed::Try(ways().remove(1)));
    // The channel comes from the publisher already.
    assert_eq!(failed(&mut moves, begun), Failed::Later { tell: true });
    assert_eq!(moves.next_deadline(), Some(begun + RETRY));
    assert!(moves.due(begun + ms(499)).is_empty() && !moves.is_under_way(&pair(1)));
    assert_eq!(moves.due(begun + RETRY), [pair(1)]);
    let open = Open { at: Some(Place::Publisher), differs: false, has_history: false };
    let tried = moves.retry(pair(1), ways(), (Some(&open), &relay("r")), begun + RETRY);
    assert_eq!(tried, Some(ways().remove(0)));
    failed(&mut moves, begun + RETRY);
    assert_eq!(failed(&mut moves, begun + RETRY), Failed::Later { tell: false }, "a person was told");
    assert_eq!(moves.failed(pair(2), &Place::Publisher, ways(), begun), Failed::Nothing);
}

#[test]
fn a_move_without_a_way_is_tried_again_later() {
    let (mut moves, begun) = new();
    assert_eq!(moves.begin(pair(1), Vec::new(), false, begun), None);
    assert!(moves.contains(&pair(1)) && !moves.is_under_way(&pair(1)));
    assert_eq!(moves.due(begun + RETRY), [pair(1)]);
}

#[test]
fn a_channel_moves_when_its_history_has_come() {
    let (mut moves, begun) = new();
    let ways = || vec![way(Name::Tcp, Place::Publisher)];
    assert_eq!(moves.begin(pair(1), ways(), true, begun), None);
    let open = |has_history| Some(Open { at: None, differs: true, has_history });
    let mut retry = |open: Option<Open>, now| moves.retry(pair(1), ways(), (open.as_ref(), &Place::Publisher), now);
    assert_eq!(retry(open(true), begun + RETRY), None);
    assert_eq!(retry(None, begun + RETRY * 2), None, "it ended meanwhile, and is not to be open twice");
    assert_eq!(retry(open(false), begun + RETRY * 3), Some(ways().remove(0)));
}

#[test]
fn a_channel_that_fell_back_moves_only_to_a_preferred_relay() {
    let better = |first: Place, at: Option<Place>, differs| {
        let open = Open { at, differs, has_history: false };
        is_better(Some(&way(Name::Tcp, first)), &open, &relay("a,b"))
    };
    let both = relay("a,b");
    assert_eq!(both.relays().collect::<Vec<_>>(), ["a", "b"]);
    assert!(better(relay("a"), Some(relay("b")), false) && better(relay("b"), Some(Place::Publisher), false));
    assert!(better(relay("b"), None, false));
    assert!(!better(relay("b"), Some(relay("a")), false) && !better(relay("b"), Some(relay("b")), false));
    assert!(better(relay("b"), Some(relay("b")), true), "another selection is wanted");
    assert!(!better(Place::Publisher, Some(relay("b")), false));
    let open = Open { at: None, differs: true, has_history: false };
    assert!(!is_better(None, &open, &both), "there is no way");
}

#[test]
fn a_channel_that_opened_moves_or_waits_for_its_relay_unless_it_is_as_wanted() {
    let proxy = |place: Place, n| Proxy { place, selection: Selection::every(n).unwrap(), picture: None };
    let by = |asked: &Proxy, wanted: &Proxy, at: &Place| settled(asked, wanted, Some(at));
    let (a, both) = (proxy(relay("a"), 2), proxy(relay("a,b"), 2));
    assert_eq!(by(&both, &both, &relay("a")), Settled::Stay);
    assert_eq!(by(&both, &both, &relay("b")), Settled::Wait, "the first one is preferred");
    assert_eq!(settled(&proxy(Place::Publisher, 2), &a, None), Settled::Wait);
    assert_eq!(by(&a, &proxy(relay("a"), 3), &relay("a")), Settled::Move);
    assert_eq!(by(&a, &proxy(Place::Publisher, 2), &relay("a")), Settled::Move);
    let whole = |place| proxy(place, 1);
    assert_eq!(settled(&whole(Place::Publisher), &whole(Place::Publisher), None), Settled::Stay);
}

#[test]
fn a_channel_waits_for_its_relay_once() {
    let (mut moves, begun) = new();
    assert!(moves.wait_for_relay(pair(1), begun) && !moves.wait_for_relay(pair(1), begun));
    assert_eq!(moves.due(begun + RETRY), [pair(1)]);
    assert_eq!(moves.leave(pair(2), Vec::new()), None);
    assert!(!moves.contains(&pair(2)));
}

#[test]
fn a_new_channel_takes_over_or_is_given_up_after_five_seconds() {
    let (mut moves, begun) = new();
    for number in [1, 2] {
        moves.begin(pair(number), vec![way(Name::Tcp, relay("r")), way(Name::Udp, relay("r"))], false, begun);
        moves.passes(pair(number), Fake::default(), begun);
    }
    assert!(!moves.is_over(&pair(1)));
    assert!(moves.laggards(begun + ms(4999)).is_empty());
    moves.passing(&pair(1)).unwrap().0.set(true);
    assert!(moves.is_over(&pair(1)));
    assert_eq!(moves.laggards(begun + LONGEST_BOTH_OPEN), [pair(2)]);
    assert!(moves.finish(pair(1)).is_some_and(|passing| passing.is_taken_over()) && !moves.contains(&pair(1)));
    let failed = moves.failed(pair(2), &Place::Publisher, Vec::new(), begun + LONGEST_BOTH_OPEN);
    assert_eq!(failed, Failed::Later { tell: true }, "another route to the relay is no faster");
}

#[test]
fn a_handshake_has_more_time_each_time_that_all_ways_failed() {
    let (mut moves, begun) = new();
    let ways = || vec![way(Name::Tcp, Place::Publisher)];
    moves.begin(pair(1), ways(), false, begun);
    let mut patience = Vec::new();
    for _ in 0..4 {
        patience.push(moves.patience(&pair(1)));
        moves.failed(pair(1), &Place::Subscriber, ways(), begun);
    }
    assert_eq!(patience, [500, 1000, 2000, 2000].map(ms));
    moves.begin(pair(1), ways(), false, begun);
    assert_eq!(moves.patience(&pair(1)), ATTEMPT, "another move");
    assert_eq!(moves.patience(&pair(2)), ATTEMPT);
}

/// Its new channel brings nothing before sample 64.
struct Thinner;

impl Passing for Thinner {
    fn is_taken_over(&self) -> bool {
        false
    }
    fn keep_old(&self) -> bool {
        true
    }
    fn is_due(&self, came: u64) -> bool {
        came >= 64
    }
}

#[test]
fn a_thinner_stream_lags_only_when_it_has_something_to_bring() {
    let (mut moves, begun) = (Moves::<Thinner, u32>::default(), Instant::now());
    let at = |seconds| begun + Duration::from_secs(seconds);
    moves.begin(pair(1), vec![way(Name::Tcp, Place::Publisher)], false, begun);
    moves.passes(pair(1), Thinner, begun);
    moves.look(at(4), &[(pair(1), 10)].into());
    assert!(moves.laggards(at(8)).is_empty());
    moves.look(at(8), &[(pair(1), 63)].into());
    moves.look(at(9), &[(pair(1), 64)].into());
    assert!(moves.laggards(at(12)).is_empty());
    assert_eq!(moves.laggards(at(13)), [pair(1)]);
}

#[test]
fn a_stream_without_samples_is_noticed_at_the_second_look() {
    let (mut moves, begun) = new();
    moves.begin(pair(1), vec![way(Name::Tcp, relay("r"))], false, begun);
    moves.passes(pair(1), Fake::default(), begun);
    assert_eq!(moves.next_deadline(), Some(begun + RETRY));
    let mut look = |at: u32, came: u64| moves.look(begun + RETRY * at, &[(pair(1), came)].into());
    assert!(look(1, 7).is_empty() && look(2, 9).is_empty());
    assert_eq!(look(2, 9), [], "not yet again");
    assert_eq!(look(3, 9), [(pair(1), 9)]);
    assert_eq!(moves.look(begun + RETRY * 4, &BTreeMap::new()), [], "the old channel is not open");
}

#[test]
fn a_channel_past_a_silent_relay_begins_when_the_relays_has_ended() {
    let (mut moves, _) = new();
    let ways = vec![way(Name::Tcp, relay("b")), way(Name::Tcp, Place::Publisher)];
    assert_eq!(moves.leave(pair(1), ways.clone()), Some(ways[0].clone()));
    assert!(moves.leaves(&pair(1)));
    assert_eq!(moves.leaving_failed(pair(1)), Some(ways[1].clone()));
    moves.arrives(pair(1), 17);
    assert_eq!(moves.arrived(pair(2)), None);
    assert_eq!((moves.arrived(pair(1)), moves.arrived(pair(1))), (Some(17), None));
    moves.leave(pair(1), ways[..1].to_vec());
    assert_eq!(moves.arrived(pair(1)), None, "no other way is open yet");
    assert_eq!(moves.leaving_failed(pair(1)), None);
    assert!(!moves.contains(&pair(1)));
}

#[test]
fn a_new_channel_that_is_given_up_ends_unless_it_has_taken_over() {
    let (mut moves, begun) = new();
    let mut give_up = |prepare: &dyn Fn(&mut TestMoves)| {
        moves.forget(&pair(1));
        prepare(&mut moves);
        let given_up = moves.give_up(pair(1));
        (matches!(given_up, GivenUp::Over), matches!(given_up, GivenUp::Passing(_)), moves.contains(&pair(1)))
    };
    let begin = |moves: &mut TestMoves| moves.begin(pair(1), vec![way(Name::Tcp, relay("r"))], false, begun);
    assert_eq!(give_up(&|_| ()), (false, false, false));
    assert_eq!(give_up(&|moves| drop(begin(moves))), (false, false, false));
    let passes = |moves: &mut TestMoves, over| {
        begin(moves);
        moves.passes(pair(1), Fake(Rc::new(Cell::new(over))), begun);
    };
    assert_eq!(give_up(&|moves| passes(moves, false)), (false, true, false));
    assert_eq!(give_up(&|moves| passes(moves, true)), (true, false, true), "its channels are taken by `finish`");
}
