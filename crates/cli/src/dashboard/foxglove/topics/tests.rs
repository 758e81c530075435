//! Channels in virtual time.

use super::*;

#[test]
fn a_channel_is_let_go_some_time_after_nobody_wants_it() {
    let mut channel =
        Channel { followed: Some(Followed { wanted_ns: 5, ..Followed::default() }), ..Channel::default() };
    channel.release(5 + RELEASE_NS - 1);
    assert!(channel.followed.is_some());
    channel.release(5 + RELEASE_NS);
    assert!(channel.followed.is_none());
}

#[test]
fn a_refused_subscriber_is_tried_again_after_a_while() {
    let mut followed = Followed::default();
    assert!(followed.is_due(0));
    followed.take(Err("too many ports".to_owned()), "/word", 7);
    assert_eq!((followed.refusal.as_deref(), followed.is_due(8)), (Some("too many ports"), false));
    assert!(followed.is_due(7 + RETRY_NS));
}
