use super::*;
use proptest::prelude::*;

#[test]
fn the_papers_commands_are_read_and_written_back() {
    for text in [
        "prop set /subscriber1 (sched ((policy SCHED_FIFO) (priority 30)))",
        "prop set /subscriber1 (qos ((priority HIGH)))",
        "[add] /out tcp",
        "a -1 1.5 \"two words\" (b () (c \"\")) \"1\" \"[x]\"",
    ] {
        assert_eq!(Bottle::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn values_have_kinds() {
    let Bottle(values) = Bottle::parse(" 12,+3 0x1f -0x10 1e3 [ok] 10.0.0.1 /a-b \"q\\\"\\n\" . 5ms").unwrap();
    let kinds = [
        Value::Int(12),
        Value::Int(3),
        Value::Int(31),
        Value::Int(-16),
        Value::Float(1000.0),
        Value::Vocab("ok".into()),
        "10.0.0.1".into(),
        "/a-b".into(),
        "q\"\n".into(),
        ".".into(),
        "5ms".into(),
    ];
    assert_eq!(values, kinds);
}

#[test]
fn malformed_text_is_reported_with_position_and_reason() {
    let deep = format!("a {}{}", "(".repeat(17), ")".repeat(17));
    let many = "x ".repeat(MOST_ITEMS + 1);
    let long = "x".repeat(LONGEST + 1);
    for (text, at, says) in [
        ("prop set (a (b", 13, "a ) is missing"),
        ("a b)", 4, "without its ("),
        ("é \"open", 3, "a \" is missing"),
        ("\"ends in \\", 1, "a \" is missing"),
        ("[]", 1, "one word"),
        ("[a b]", 1, "one word"),
        ("x ]", 3, "without its ["),
        ("a 99999999999999999999", 3, "out of range"),
        ("1e999", 1, "out of range"),
        (deep.as_str(), 19, "16 lists"),
        (many.as_str(), 2 * MOST_ITEMS + 1, "256 values"),
        (long.as_str(), LONGEST, "8192"),
    ] {
        let error = Bottle::parse(text).unwrap_err();
        assert_eq!(error.at, at, "{text:.40}: {error}");
        assert!(error.to_string().contains(says), "{text:.40}: {error}");
    }
    assert!(Bottle::parse(&format!("{}{}", "(".repeat(16), ")".repeat(16))).is_ok());
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::Float),
        ".{0,12}".prop_map(Value::Text),
        "[a-z]{1,8}".prop_map(Value::Vocab),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| prop::collection::vec(inner, 0..5).prop_map(Value::List))
}

proptest! {
    #[test]
    fn written_text_is_read_back_unchanged(values in prop::collection::vec(values(), 0..6)) {
        let bottle = Bottle(values);
        prop_assert_eq!(Bottle::parse(&bottle.to_string()), Ok(bottle));
    }

    #[test]
    fn any_text_is_answered(text in ".{0,80}|[()\\[\\]\" a1.\\\\-]{0,60}") {
        if let Ok(bottle) = Bottle::parse(&text) {
            prop_assert_eq!(Bottle::parse(&bottle.to_string()), Ok(bottle));
        }
    }
}
